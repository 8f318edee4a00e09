// scope_cluster: one scope on several nodes, in one thread, from a seed.
//
//   clients (clients.cpp)            ask, cancel, run into deadlines, release,
//     |                              downgrade, end
//     v
//   one open scope (open_scope.cpp)  the real machines: coordinator,
//   membership,
//     |                              requests, workers, walks, lock table,
//     ledgers v                              and the executor that the actors
//     use
//   processes, links (links.cpp)     simulated: messages with a delay, in order
//     |                              per link; epochs; what a scope that is
//     v                              closed answers
//   faults (faults.cpp)              cuts, deaths, freezes, slowness
//
// Beside it stands the checker (checker.cpp, wait_history, row_watch), with an
// idea of truth of its own: from the rows and from what clients were told,
// never from what the machines say of each other.
//
// It stands in for actors: what a scope's actor and each worker are told goes
// through a queue of each, so that they take turns in any order, as threads do.
// It stands in for net: both ends of a link notice its end at different times,
// what arrives over an epoch that its receiver has left is refused, and one
// that is deaf in one direction loses the link after the time-out, then the
// other.
//
// The same seed gives the same run, byte for byte.

#pragma once

#include "event_queue.hpp"
#include "options.hpp"
#include "row_watch.hpp"
#include "trace.hpp"
#include "wait_history.hpp"

#include "pawl/core/coordinator.hpp"
#include "pawl/core/effect_executor.hpp"
#include "pawl/core/local_locks.hpp"
#include "pawl/core/walk.hpp"
#include "pawl/core/worker.hpp"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace pawl::sim {

class scope_cluster {
public:
  explicit scope_cluster(const cluster_options& options);

  scope_cluster(const scope_cluster&) = delete;
  scope_cluster& operator=(const scope_cluster&) = delete;

  ~scope_cluster();

  /// Lets clients act, then drains, then checks that nothing is left. Throws a
  /// violation.
  void run();

  /// How often something happened.
  [[nodiscard]] std::size_t count(const std::string& what) const;

  [[nodiscard]] const std::map<std::string, std::size_t>& counts() const {
    return counts_;
  }

private:
  static constexpr std::chrono::nanoseconds node_timeout{1000};
  static constexpr std::uint64_t link_delay = 40;
  static constexpr std::uint64_t slow_delay = 12 * link_delay;
  /// An end of a link finds out within this that the other has left it.
  static constexpr std::uint64_t notice = 600;
  /// From a client's word, by way of the scope's actor, to the row; about.
  static constexpr time_point give_up_delay{8 + slow_delay};
  /// Wall clocks begin so long after the origin of tokens.
  static constexpr time_point wall_start{1'000'000};
  /// Messages are faster here, compared with the ticks of tokens, than
  /// anywhere: for tokens the time runs so many times as fast.
  static constexpr std::int64_t token_scale = 1024;

  // -- clients ----------------------------------------------------------------

  /// A client's session.
  class session final : public session_ledger {
  public:
    session(session_id id, const lamport_clock& clock, scope_cluster& cluster)
      : session_ledger(id, clock), cluster_(cluster) {
      // nop
    }

  private:
    void revoked(hold_record& r) noexcept override {
      cluster_.direct_revoked(r);
    }
    void last_gone() noexcept override {
      delete this;
    }
    scope_cluster& cluster_;
  };

  enum class stage : std::uint8_t { pending, held, done };

  /// A request as its client sees it. `at` is the client's word.
  struct ask {
    request_spec spec;
    std::size_t node = 0;
    std::uint64_t life = 0; // of the scope
    std::uint64_t who = 0;
    time_point asked{0};
    time_point over{0};
    stage at = stage::pending;
    bool told = false;
    bool aged = false; // and its session claims that age
    std::vector<term_lock> held; // mode none: given up
    std::vector<fencing_token> tokens;
    // for one node alone
    waiter* waits = nullptr;
    hold_record* record = nullptr;
  };

  class direct_waiter;

  /// What a session does from beginning to end: takes locks until it has all.
  struct script {
    std::size_t left = 0;
    std::size_t pending = 0;
    int next_term = 0; // sorted
    bool ends = false;
  };

  // -- nodes ------------------------------------------------------------------

  struct open_scope;

  /// One start of a process. Its scope comes and goes.
  struct process {
    std::size_t index = 0;
    std::uint64_t life = 0;
    time_point started{0};
    std::int64_t wall_step = 0;
    lamport_clock clock;
    /// What has been heard of tokens: from its own clock and from peers.
    fencing::running_floor floor;
    /// Of open links, by peer; 0: none.
    std::vector<link_epoch> epochs;
    /// Peers that have not acknowledged yet that a scope of this life has been
    /// closed: to them this node has none.
    std::set<std::size_t> endings;
    std::unique_ptr<open_scope> here; // null while the scope is closed
    bool frozen = false;
    time_point slow_until{0};
    /// What is due while it is frozen.
    std::vector<std::function<void()>> due;
    /// When the last thing is due that an actor is told, by actor.
    std::map<std::size_t, time_point> turns;
  };

  static constexpr node_slot slot(std::size_t i) {
    return static_cast<node_slot>(i);
  }

  [[nodiscard]] bool lives(std::size_t i, std::uint64_t life) const;
  [[nodiscard]] open_scope* scope_at(std::size_t i) const;
  /// Null if that scope has been closed since.
  [[nodiscard]] open_scope* scope_of(const ask& a) const;
  [[nodiscard]] fencing_token wall_floor(const process& p) const;
  [[nodiscard]] time_point token_time() const noexcept {
    return events_.now() * token_scale;
  }

  void start_node(std::size_t i, std::int64_t wall_step);
  void open(process& p);
  void close(process& p);
  void stop_node(std::size_t i);
  void empty_scope(open_scope& s);
  void tick_later(open_scope& s);

  // -- time -------------------------------------------------------------------

  void at(time_point when, std::function<void()> what) {
    events_.at(when, std::move(what));
  }
  void later(std::uint64_t delay, std::function<void()> what) {
    at(events_.now() + time_point{delay}, std::move(what));
  }
  /// On a node, unless it has been stopped by then; when it runs.
  void at_node(const process& p, time_point when, std::function<void()> what);
  void later_on(const process& p, std::uint64_t delay,
                std::function<void()> what);
  /// In a scope, unless it has been closed by then.
  void later_in(const open_scope& s, std::uint64_t delay,
                std::function<void()> what);
  /// In the turn of one of the scope's actors, behind what it has been told;
  /// `if_closed` if the scope has been closed by then.
  void turn(const open_scope& s, std::size_t actor, std::function<void()> what,
            std::function<void()> if_closed = {});
  void run_on(std::size_t node, std::uint64_t life,
              const std::function<void()>& what);
  void step();

  std::uint64_t below(std::uint64_t limit) {
    return random_() % limit;
  }

  // -- links ------------------------------------------------------------------

  void connect_later(std::size_t i, std::size_t j);
  void connect(std::size_t i, std::size_t j);
  void link_is_up(process& p, std::size_t peer, link_epoch epoch,
                  fencing_token floor);
  void meet(open_scope& s, std::size_t peer);
  void drop_link(process& p, std::size_t peer);
  void notice_later(std::size_t at, std::size_t peer, link_epoch epoch,
                    std::uint64_t delay);
  void channel(std::size_t from, std::size_t to, link_epoch epoch,
               std::function<void()> f, bool overtakes = false);
  void post(process& from, std::size_t to, message what);
  void arrive(std::size_t from, std::size_t to, link_epoch epoch,
              const message& what);
  void dispatch(process& p, std::size_t from, link_epoch epoch,
                const message& what);
  void answer_for_nobody(process& p, std::size_t to, const message& what);
  void beat();

  // -- faults -----------------------------------------------------------------

  [[nodiscard]] bool deaf(std::size_t from, std::size_t to) const {
    return deaf_.count({from, to}) != 0;
  }
  void cut(std::size_t i, std::size_t j);
  void go_deaf(std::size_t from, std::size_t to);
  void heal(std::size_t i, std::size_t j);
  [[nodiscard]] bool may_lose_one() const;
  void start_again(std::size_t i, std::int64_t wall_step);
  void kill(std::size_t i);
  void freeze(process& p);
  void thaw(process& p);
  void reopen(process& p);
  bool act_of_god(std::size_t i, std::uint64_t dice);

  // -- what clients do --------------------------------------------------------

  void act();
  ask* some_ask();
  session& new_session(open_scope& s);
  session& some_session(open_scope& s);
  ask& new_ask(open_scope& s, session& who);
  bool mark_others(open_scope& s, const ask& mine);
  void begin_script(open_scope& s);
  void ask_next(open_scope& s, std::uint64_t who);
  void play_on(open_scope& s, std::uint64_t who, bool granted);
  void ask_several(open_scope& s, session& who);
  void open_request(open_scope& s, std::uint64_t serial);
  void ask_direct(open_scope& s, session& who);
  [[nodiscard]] term some_term(std::uint64_t who);
  [[nodiscard]] lock_mode some_mode(std::uint64_t who, const term& what);
  [[nodiscard]] term_lock some_lock(std::uint64_t who);
  [[nodiscard]] bool holds_something(const session& who);
  void set_deadline(open_scope& s, const ask& a, bool always);
  void direct_settled(std::uint64_t serial, waiter& w);
  void direct_revoked(hold_record& r);
  void cancel(ask& a, outcome why);
  void give_up(ask& a);
  void give_up_one(ask& a);
  void release_later(open_scope& s, request_id id,
                     std::vector<std::uint16_t> which);
  void downgrade(ask& a);
  void make_shared(const std::pair<std::uint64_t, term>& key);
  void end_session(open_scope& s, std::uint64_t who);
  void finish_ask(ask& a);
  [[nodiscard]] std::vector<ask*> live_asks();

  // -- what clients are told --------------------------------------------------

  void told_aged(open_scope& s, const request_id& id, std::uint64_t lamport);
  bool told_whole(open_scope& s, const request_id& id,
                  const std::vector<fencing_token>& tokens,
                  const std::vector<node_slot>& nodes);
  void told_ended(open_scope& s, const request_id& id, outcome why);
  void told_lost(const request_id& id, std::uint16_t which, loss why);

  // -- what searches ask ------------------------------------------------------

  [[nodiscard]] bool is_pending(const request_id& id,
                                attempt_number attempt) const;
  [[nodiscard]] standing how_in_the_way(open_scope& s, const walk_claim& x);
  [[nodiscard]] std::uint64_t age_of(open_scope& s, const session_id& who);
  bool sentence(open_scope& s, const walk_verdict_message& x,
                scope_effects& out);

  // -- the checker ------------------------------------------------------------

  void check(bool ok, const std::string& what) const;
  void observe_waits();
  void observe_outranked(open_scope& s, const waiter& w);
  void check_outranked(const open_scope& s, const waiter& w);
  void observe_row(open_scope& s, const term& t, std::set<wait_edge>& out);
  void watch_rows(std::size_t node);
  [[nodiscard]] std::vector<node_slot> nodes_of(const ask& a) const;
  [[nodiscard]] bool outlived(const ask& a, node_slot node) const;
  [[nodiscard]] bool has_part(const ask& a, const term_lock& t,
                              node_slot node) const;
  void check_whole(const ask& a, const std::vector<node_slot>& nodes) const;
  void check_grant(const ask& a, const std::vector<node_slot>& nodes);
  void check_alone(const ask& a, const std::vector<node_slot>& nodes) const;
  void check_pair(const ask& a, const ask& b, node_slot node) const;
  void check_token(const ask& a, const term& what, fencing_token token,
                   const std::vector<node_slot>& nodes);
  [[nodiscard]] bool is_another_handle(const ask& a, const term& what) const;
  void check_forgotten_later(std::size_t dead);
  void check_forgotten(std::size_t dead, std::uint64_t last_serial) const;
  void drain();
  void end_faults();
  void check_nothing_is_left();

  // -- the trace --------------------------------------------------------------

  void tally(const std::string& what, std::size_t by = 1) {
    counts_[what] += by;
  }

  template <class... Ts>
  void say(fmt::format_string<const Ts&...> format, const Ts&... args) const {
    if (options_.trace != nullptr)
      *options_.trace << events_.now().count() << ": "
                      << fmt::format(format, args...) << '\n';
  }

  cluster_options options_;
  std::mt19937_64 random_;
  event_queue events_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<process>> nodes_; // null while down
  std::map<std::uint64_t, ask> asks_;
  std::set<std::uint64_t> live_; // serials of those that are not done
  std::map<std::uint64_t, script> scripts_;
  std::set<std::uint64_t> several_; // sessions that had two requests at once
  /// Sessions that have made a hold shared of which their home has not heard.
  std::multiset<std::pair<std::uint64_t, term>> downgrading_;
  std::set<std::pair<std::size_t, std::size_t>> deaf_; // from, to
  std::map<std::pair<std::size_t, std::size_t>, time_point> arrivals_;
  bool draining_ = false;
  std::uint64_t serials_ = 0; // of sessions, requests
  std::uint64_t lives_ = 0;   // of processes, scopes
  link_epoch epochs_ = 0;
  // -- the checker's ----------------------------------------------------------
  std::map<std::string, std::size_t> counts_;
  std::map<std::pair<term, fencing_token>, std::uint64_t> issued_;
  std::map<std::pair<term, node_slot>, fencing_token> last_;
  wait_history waits_;
  row_watch rows_;
  std::size_t touched_; // the node on which the present step is taken
  bool quiet_ = false;  // and it has changed nothing in any row
};

} // namespace pawl::sim
