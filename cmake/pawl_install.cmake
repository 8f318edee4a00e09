# Install rules: the headers in the tree users include them by, the libraries,
# and a CMake package that finds what they stand on.
include(CMakePackageConfigHelpers)

foreach(room IN ITEMS core actors net)
  install(DIRECTORY ${room}/
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/pawl/${room}"
          FILES_MATCHING PATTERN "*.hpp")
endforeach()
install(FILES pawl.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/pawl" OPTIONAL)

install(TARGETS pawl pawl_core pawl_actors pawl_net EXPORT pawlTargets)
set(pawl_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/pawl")
install(EXPORT pawlTargets NAMESPACE pawl:: DESTINATION "${pawl_cmake_dir}")

configure_package_config_file(
  cmake/pawlConfig.cmake.in "${PROJECT_BINARY_DIR}/pawlConfig.cmake"
  INSTALL_DESTINATION "${pawl_cmake_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/pawlConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/pawlConfig.cmake"
              "${PROJECT_BINARY_DIR}/pawlConfigVersion.cmake"
              cmake/FindPawlCAF.cmake
        DESTINATION "${pawl_cmake_dir}")
