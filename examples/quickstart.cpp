// Two actors and one term. Many may look at a pump at a time; who adjusts it
// has to be alone:
//   - the watcher locks it shared, and keeps it;
//   - the adjuster locks it shared as well, and releases it;
//   - the adjuster asks for it exclusively: waits, and gives up after 100 ms;
//   - it asks again, asks the watcher to let go, and gets it.

#include <pawl/pawl.hpp>

#include <fmt/format.h>

using namespace std::chrono_literals;

caf::behavior adjuster(caf::event_based_actor* self, pawl::scope pumps,
                       caf::actor watcher) {
  auto mine = pumps.attach(self);
  mine.lock("pump-7", pawl::shared).then([](pawl::lock held) {
    fmt::print("adjuster: holds pump-7, {}\n", to_string(held.mode()));
  }); // the handle is gone: released
  auto alone = [=](pawl::lock held) {
    fmt::print("adjuster: holds pump-7, {}\n", to_string(held.mode()));
    pawl::compat::send(self, watcher, std::string{"the end"});
    self->quit(); // whatever it holds is released
  };
  auto refused = [=](const pawl::failure& why) {
    fmt::print("adjuster: exclusive? {}\n", to_string(why.why));
    mine.lock("pump-7", pawl::exclusive).then(alone);
    pawl::compat::send(self, watcher, std::string{"let go"});
  };
  mine.lock("pump-7", pawl::exclusive).within(100ms).then(alone, refused);
  return {[](const std::string&) {}};
}

caf::behavior watcher(caf::event_based_actor* self, pawl::scope pumps) {
  struct belongings {
    pawl::lock held;
    caf::actor adjuster; // CAF ends an actor that nobody has a handle of
  };
  auto mine = std::make_shared<belongings>();
  pumps.attach(self).lock("pump-7", pawl::shared).then([=](pawl::lock held) {
    fmt::print("watcher:  holds pump-7, {}\n", to_string(held.mode()));
    mine->held = std::move(held);
    mine->adjuster = self->spawn(adjuster, pumps, caf::actor{self});
  });
  return {[=](const std::string& what) {
    if (what == "the end")
      return self->quit();
    fmt::print("watcher:  is asked to {}\n", what);
    mine->held.release();
  }};
}

int main() {
  pawl::config cfg;
  caf::actor_system system{cfg};
  pawl::node here{system, cfg}; // by itself: no name, no peers
  auto first = system.spawn(watcher, here.open("pumps"));
  system.await_all_actors_done();
}
