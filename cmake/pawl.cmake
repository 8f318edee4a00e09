# What every target of ours has in common.
#
#   pawl_library(<room> SOURCES <file>... LINK <target>...)
#       The library of a room: target pawl_<room>, alias pawl::<room>.
#   pawl_target(<target>)
#       Our language level and warnings, for any target of ours.
#   pawl_precompile(<name> LINK <target>... HEADERS <header>...)
#       Builds a precompiled header. pawl_pch is the one of CAF. Nothing that
#       defines objects, as CLI11 does: each source would make them all again.
#   pawl_use_precompiled(<target> <name>)
#       Has a target use one.

# -- flags of the whole build -------------------------------------------------

# Sanitizers are set for the directory, not per target: everything that ends up
# in one program has to agree on them, the precompiled header included.
if(PAWL_SANITIZE)
  if(PAWL_SANITIZE STREQUAL "fuzzer")
    # Instruments everything; only a fuzz target gets the engine's main.
    set(pawl_sanitize_flags -fsanitize=fuzzer-no-link,address)
  else()
    # No -fno-sanitize-recover: it ends the program even at a suppressed
    # report. halt_on_error=1 in the environment stops at the others.
    set(pawl_sanitize_flags -fsanitize=${PAWL_SANITIZE})
  endif()
  list(APPEND pawl_sanitize_flags -fno-omit-frame-pointer)
  add_compile_options(${pawl_sanitize_flags})
  add_link_options(${pawl_sanitize_flags})
endif()

# ccache is used when it is there. It has to be told that a precompiled header
# is no obstacle, and GCC that it should leave a trace of it.
find_program(PAWL_CCACHE ccache)
mark_as_advanced(PAWL_CCACHE)
if(PAWL_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros" "${PAWL_CCACHE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

# Tests, and programs that only start others, are optimized a little less.
set(pawl_less_optimized $<$<NOT:$<CONFIG:Debug>>:-O1>)

# -- targets ------------------------------------------------------------------

function(pawl_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 takes the inactive members of a std::variant for uninitialized.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    if(CMAKE_UNITY_BUILD)
      # It takes a source that is compiled with others for a header.
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
  if(PAWL_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

function(pawl_library room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  set(target pawl_${room})
  if(arg_SOURCES)
    add_library(${target} ${arg_SOURCES})
    pawl_target(${target})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    target_compile_features(${target} INTERFACE cxx_std_20)
    set(scope INTERFACE)
  endif()
  add_library(pawl::${room} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${room})
  target_include_directories(
    ${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${arg_LINK})
endfunction()

# -- precompiled headers ------------------------------------------------------

function(pawl_precompile name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;HEADERS")
  if(NOT PAWL_PCH)
    return()
  endif()
  set(stub "${PROJECT_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${stub}" CONTENT "// Carries the header alone.\n")
  add_library(${name} OBJECT "${stub}")
  pawl_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} Threads::Threads)
  target_precompile_headers(
    ${name} PRIVATE
    <algorithm> <atomic> <chrono> <cstdint> <deque> <functional> <map> <memory>
    <mutex> <optional> <set> <string> <string_view> <thread> <unordered_map>
    <utility> <variant> <vector> <fmt/format.h> ${arg_HEADERS})
endfunction()

function(pawl_use_precompiled target name)
  get_target_property(type ${target} TYPE)
  if(TARGET ${name} AND NOT type STREQUAL "INTERFACE_LIBRARY")
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
