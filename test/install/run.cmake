# Installs the build to a place of its own, and builds and runs a user's
# project against nothing but that.
function(step what)
  message(STATUS "${what}")
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${where}")
step("install" "${CMAKE_COMMAND}" --install "${build}" --config "${config}"
     --prefix "${where}/prefix")
step("configure" "${CMAKE_COMMAND}" -S "${source}" -B "${where}/build"
     -G "${generator}" "-DCMAKE_CXX_COMPILER=${compiler}"
     "-DCMAKE_BUILD_TYPE=${config}" "-DCMAKE_CXX_FLAGS=${flags}"
     "-DCMAKE_PREFIX_PATH=${where}/prefix" "-DPAWL_CAF_ROOT=${caf_root}")
step("build" "${CMAKE_COMMAND}" --build "${where}/build")
step("run" "${where}/build/user")
