# Refuses what would let the rooms grow together:
#   - core includes nothing of CAF, actors or net; actors nothing of net;
#   - no room includes pawl.hpp, which stands for all of them;
#   - only actors/caf_compat.hpp asks which CAF it is compiled with.
#
# Run as cmake -Droot=<source directory> -P layering.cmake
if(NOT EXISTS "${root}/core" OR NOT EXISTS "${root}/actors")
  message(FATAL_ERROR "layering: no source tree at '${root}'")
endif()

set(faults 0)

# Reports each line of the room's files that matches. A pattern stands for
# the rest of a line after its leading blanks.
function(refuse room pattern why)
  file(GLOB_RECURSE files RELATIVE "${root}"
       "${root}/${room}/*.hpp" "${root}/${room}/*.cpp")
  foreach(file IN LISTS files)
    if(file STREQUAL "actors/caf_compat.hpp" AND why MATCHES "caf_compat")
      continue()
    endif()
    file(READ "${root}/${file}" text)
    set(text "\n${text}")
    set(line 0)
    while(text MATCHES "\n[ \t]*(${pattern}[^\n]*)")
      set(hit "${CMAKE_MATCH_1}")
      string(FIND "${text}" "${CMAKE_MATCH_0}" at)
      math(EXPR at "${at} + 1")
      string(SUBSTRING "${text}" 0 ${at} before)
      string(SUBSTRING "${text}" ${at} -1 text)
      string(REGEX REPLACE "[^\n]" "" before "${before}")
      string(LENGTH "${before}" lines)
      math(EXPR line "${line} + ${lines}")
      math(EXPR faults "${faults} + 1")
      message(NOTICE "${file}:${line}: ${hit}\n    ${why}")
    endwhile()
  endforeach()
  set(faults ${faults} PARENT_SCOPE)
endfunction()

set(include "#[ \t]*include[ \t]*[<\"]([^>\"\n]*/)?")
set(condition "#[ \t]*(if|elif|ifdef|ifndef)[^\n]*")

refuse(core "${include}caf/" "core knows no CAF")
refuse(core "${include}(actors|net)/" "core knows neither actors nor net")
refuse(actors "${include}net/" "actors does not know net")
foreach(room IN ITEMS core actors net)
  refuse(${room} "${include}pawl[.]hpp" "a room names the headers it needs")
endforeach()
foreach(room IN ITEMS core actors net test bench examples)
  refuse(${room} "${condition}(CAF_([A-Z]+_)?VERSION|include[^\n]*[<\"]caf/)"
         "only actors/caf_compat.hpp asks for CAF's version")
endforeach()

if(faults)
  message(FATAL_ERROR "layering: ${faults} line(s) refused")
endif()
message(STATUS "layering: in order")
