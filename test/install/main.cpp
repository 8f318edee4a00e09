// A user's first program, against the installed pawl: a node by itself, a
// scope, a lock.

#include <pawl/pawl.hpp>

#include <cstdio>

int main() {
  pawl::config cfg;
  caf::actor_system system{cfg};
  pawl::node here{system, cfg};
  auto tags = here.open("tags");

  auto mine = tags.attach();
  auto held = mine.lock("pump-7", pawl::exclusive).wait();
  if (!held || !held->still_held()) {
    std::puts("a free term was not granted");
    return 1;
  }
  auto other = tags.attach().lock("pump-7", pawl::shared).no_wait().wait();
  if (other || other.error().why != pawl::outcome::busy) {
    std::puts("a locked term was granted");
    return 1;
  }
  if (held->release() != pawl::release_result::released)
    return 1;
  std::puts("installed, found, built, locked, released");
}
