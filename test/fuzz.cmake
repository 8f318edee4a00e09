# Builds a fuzz target with clang's engine, in a build of its own, and runs it for
# some seconds from its corpus.
find_program(clang NAMES clang++ clang++-14)
if(NOT clang)
  message("skipped: there is no clang++")
  return()
endif()

function(step what)
  message(STATUS "${what}")
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

step("configure" "${CMAKE_COMMAND}" -S "${source}" -B "${where}"
     -G "${generator}" "-DCMAKE_CXX_COMPILER=${clang}"
     -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"
     -DPAWL_SANITIZE=fuzzer -DPAWL_PCH=OFF -DPAWL_BUILD_BENCH=OFF
     -DPAWL_BUILD_EXAMPLES=OFF "-DPAWL_CAF_ROOT=${caf_root}")
step("build" "${CMAKE_COMMAND}" --build "${where}" --target ${target} -j 2)
# What it finds of use goes to the first directory.
file(MAKE_DIRECTORY "${where}/${target}.found")
step("run" "${where}/test/${room}/${target}" -max_total_time=${seconds}
     -timeout=10 -rss_limit_mb=1024 -print_final_stats=1
     "${where}/${target}.found" "${corpus}")
