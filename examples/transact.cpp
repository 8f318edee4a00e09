// Two tellers move money between two accounts, each locking as it goes: first
// to read, then to write. Both read, both want to write: a deadlock. The
// younger is told, and its body is run again; nobody sees more of it than a
// restart.

#include <pawl/pawl.hpp>

#include <fmt/format.h>

using namespace std::chrono_literals;

struct accounts { // each guarded by the lock of its name
  int giro = 100;
  int savings = 100;
  int moves = 0; // guarded by both
};

caf::behavior teller(caf::event_based_actor* self, pawl::scope bank,
                     std::shared_ptr<accounts> books, std::size_t times) {
  auto move = [=](int) {
    return pawl::transact(bank, self, [=](pawl::transaction tx) {
      tx.lock("giro", pawl::shared).then([=](pawl::lock reading) {
        auto amount = books->giro / 10;
        tx.lock("giro", pawl::exclusive) // an upgrade
          .within(10s)
          .then([=, reading = std::move(reading)](pawl::lock giro) mutable {
            tx.lock("savings", pawl::exclusive)
              .then([=, giro = std::move(giro)](pawl::lock) {
                books->giro -= amount;
                books->savings += amount;
                ++books->moves;
              }); // all is released when nothing of the body is left
          });
      });
    });
  };
  pawl::for_each(bank, self, std::vector<int>(times), 2, move)
    .then([=] { self->quit(); },
          [=](const pawl::task_failure& why) {
            fmt::print("failed: {}\n", why.message);
            self->quit();
          });
  return {[](int) {}};
}

int main() {
  pawl::config cfg;
  caf::actor_system system{cfg};
  pawl::node here{system, cfg}; // by itself: no name, no peers
  auto bank = here.open("bank");
  auto books = std::make_shared<accounts>();
  auto first = system.spawn(teller, bank, books, std::size_t{50});
  auto second = system.spawn(teller, bank, books, std::size_t{50});
  system.await_all_actors_done();
  fmt::print("moves: {}, together: {}\n", books->moves,
             books->giro + books->savings);
}
