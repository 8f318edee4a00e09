# Finds CAF and offers CAF::core and CAF::io, and CAF::openssl where it exists.
#
# Debian's CAF (0.17.6) ships neither a CMake package nor a pkg-config file, so
# headers and libraries are looked up by name. A newer CAF brings its own
# package; it is taken from PAWL_CAF_ROOT and from nowhere else, because a plain
# find_package(CAF) would quietly prefer any copy under a default prefix.
include(FindPackageHandleStandardArgs)
find_package(Threads QUIET)

if(PAWL_CAF_ROOT)
  # CAF's own package expects OpenSSL to have been found by its user.
  find_package(OpenSSL QUIET)
  if(OPENSSL_FOUND)
    set(_pawl_caf_optional OPTIONAL_COMPONENTS openssl)
  endif()
  find_package(CAF QUIET COMPONENTS core io ${_pawl_caf_optional}
               PATHS "${PAWL_CAF_ROOT}" NO_DEFAULT_PATH)
  unset(_pawl_caf_optional)
  set(PawlCAF_VERSION "${CAF_VERSION}")
  find_package_handle_standard_args(
    PawlCAF REQUIRED_VARS CAF_DIR VERSION_VAR PawlCAF_VERSION
    REASON_FAILURE_MESSAGE "no CAF package with core and io in PAWL_CAF_ROOT")
else()
  find_path(CAF_INCLUDE_DIR caf/all.hpp)
  foreach(_pawl_caf IN ITEMS core io openssl)
    find_library(CAF_${_pawl_caf}_LIBRARY caf_${_pawl_caf})
    mark_as_advanced(CAF_${_pawl_caf}_LIBRARY)
  endforeach()
  mark_as_advanced(CAF_INCLUDE_DIR)

  if(CAF_INCLUDE_DIR)
    # CAF_VERSION is one number: 1706 is 0.17.6.
    file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" _pawl_caf
         REGEX "#define CAF_VERSION [0-9]+")
    if(_pawl_caf MATCHES "CAF_VERSION ([0-9]+)")
      math(EXPR _pawl_major "${CMAKE_MATCH_1} / 10000")
      math(EXPR _pawl_minor "(${CMAKE_MATCH_1} / 100) % 100")
      math(EXPR _pawl_patch "${CMAKE_MATCH_1} % 100")
      set(PawlCAF_VERSION "${_pawl_major}.${_pawl_minor}.${_pawl_patch}")
    endif()
  endif()
  find_package_handle_standard_args(
    PawlCAF REQUIRED_VARS CAF_core_LIBRARY CAF_io_LIBRARY CAF_INCLUDE_DIR
    VERSION_VAR PawlCAF_VERSION)

  if(PawlCAF_FOUND AND NOT TARGET CAF::core)
    foreach(_pawl_caf IN ITEMS core io openssl)
      if(CAF_${_pawl_caf}_LIBRARY)
        add_library(CAF::${_pawl_caf} UNKNOWN IMPORTED)
        set_target_properties(
          CAF::${_pawl_caf} PROPERTIES
          IMPORTED_LOCATION "${CAF_${_pawl_caf}_LIBRARY}"
          INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
      endif()
    endforeach()
    target_link_libraries(CAF::core INTERFACE Threads::Threads)
    target_link_libraries(CAF::io INTERFACE CAF::core)
    if(TARGET CAF::openssl)
      target_link_libraries(CAF::openssl INTERFACE CAF::io)
    endif()
  endif()
endif()
