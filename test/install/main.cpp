// A user's first program, against the installed pawl.

#if __has_include(<pawl/pawl.hpp>)
#  include <pawl/pawl.hpp>
#endif

#include <fmt/format.h>

#include <caf/all.hpp>

int main() {
  caf::actor_system_config cfg;
  caf::actor_system sys{cfg};
  fmt::print("installed, found, built, run\n");
}
