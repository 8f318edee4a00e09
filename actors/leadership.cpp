#include "pawl/actors/leadership.hpp"

#include "pawl/actors/log.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/actors/type_ids.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include <fmt/format.h>

namespace pawl {

/// What handle and actor share.
class leadership_state final : public stop_first {
public:
  std::atomic<fencing_token> epoch{0};

  void attach(caf::actor who) {
    std::lock_guard guard{lock_};
    if (!ended_) // it runs already
      actor_ = std::move(who);
  }

  void stop() override {
    tell(stop_atom_v);
  }

  template <class Atom>
  void tell(Atom what) {
    caf::actor who;
    {
      std::lock_guard guard{lock_};
      who = actor_;
    }
    compat::anon_send(who, what);
  }

  void ended() {
    std::lock_guard guard{lock_};
    ended_ = true;
    actor_ = nullptr;
    changed_.notify_all();
  }

  bool wait_stopped(std::chrono::milliseconds limit) override {
    std::unique_lock guard{lock_};
    return changed_.wait_for(guard, limit, [this] { return ended_; });
  }

private:
  std::mutex lock_;
  std::condition_variable changed_;
  caf::actor actor_; // keeps it alive while it waits
  bool ended_ = false;
};

namespace {

/// Whether the term prefers this node: it has the largest weight.
bool preferred(const scope_state& scope, const term& what) {
  auto weight = [&](const std::string& node) {
    std::vector<std::byte> bytes(what.bytes().begin(), what.bytes().end());
    for (auto c : node)
      bytes.push_back(static_cast<std::byte>(c));
    return hash_bytes(bytes);
  };
  const auto& names = scope.place().names;
  auto mine = weight(scope.name_of(scope.self()));
  return std::all_of(names.begin(), names.end(),
                     [&](const auto& x) { return weight(x) <= mine; });
}

class leader final : public caf::event_based_actor {
public:
  leader(caf::actor_config& cfg, scope where, term what,
         service_factory factory, leadership_options options,
         std::shared_ptr<leadership_state> shared)
    : caf::event_based_actor(cfg),
      scope_(std::move(where)),
      term_(std::move(what)),
      factory_(std::move(factory)),
      options_(options),
      shared_(std::move(shared)),
      monitors_(this),
      delay_(options.back_off) {
    // nop
  }

  caf::behavior make_behavior() override {
    session_.emplace(scope_.attach(this));
    session_->on_lost([this](const hold_event& x) {
      if (x.what == hold_event::kind::lost)
        lost();
    });
    if (preferred(*scope_.state(), term_))
      ask();
    else
      wake_after(options_.settle);
    return {
      [this](wake_atom, std::uint64_t generation) {
        if (generation == generation_)
          wake();
      },
      [this](look_atom) { resign(); },
      [this](stop_atom) { stop(); },
    };
  }

  void on_exit() override {
    if (service_)
      compat::anon_send_exit(service_, caf::exit_reason::kill);
    service_ = nullptr;
    held_.release();
    session_.reset();
    shared_->epoch = 0;
    shared_->ended();
  }

private:
  enum class phase : std::uint8_t {
    settling,
    asking,
    leading,
    stopping,
    backing_off,
  };

  // -- events -----------------------------------------------------------------

  void wake() {
    switch (phase_) {
      case phase::settling:
      case phase::backing_off:
        ask();
        break;
      case phase::stopping:
        // It was asked, and had its time.
        compat::anon_send_exit(service_, caf::exit_reason::kill);
        break;
      default:
        break;
    }
  }

  void ask() {
    phase_ = phase::asking;
    session_->lock(term_, exclusive)
      .on(every_node)
      .cancel_with(cancel_.token())
      .then([this](lock held) { granted(std::move(held)); },
            [this](const failure& why) { refused(why); });
  }

  void granted(lock held) {
    if (ending_) {
      held.release();
      quit();
      return;
    }
    held_ = std::move(held);
    auto epoch = held_.token();
    try {
      service_ = factory_(system(), epoch);
    } catch (const std::exception& x) {
      failed(fmt::format("its factory threw: {}", x.what()));
      return;
    } catch (...) {
      failed("its factory threw");
      return;
    }
    if (!service_) {
      failed("its factory made no actor");
      return;
    }
    phase_ = phase::leading;
    since_ = std::chrono::steady_clock::now();
    shared_->epoch = epoch;
    monitors_.add(service_, [this](const caf::actor_addr&, const caf::error&) {
      service_down();
    });
  }

  void refused(const failure& why) {
    if (ending_ || why.why == outcome::scope_closed
        || why.why == outcome::shutting_down
        || why.why == outcome::session_ended) {
      quit();
      return;
    }
    back_off();
  }

  void service_down() {
    service_ = nullptr;
    shared_->epoch = 0;
    auto was = phase_;
    held_.release();
    if (ending_) {
      quit();
    } else if (was == phase::stopping) {
      ++generation_; // no kill any more
      ask();
    } else {
      log_line(log_level::warning,
               fmt::format("service {} has died on {}: the lock is given up",
                           to_string(term_), scope_.node()));
      // One that ran for a while has not failed at once again.
      if (std::chrono::steady_clock::now() - since_ > 10 * delay_)
        delay_ = options_.back_off;
      back_off();
    }
  }

  /// The lock is gone: another node may lead already.
  void lost() {
    if (phase_ != phase::leading)
      return;
    log_line(log_level::warning,
             fmt::format("leadership of {} is lost on {}: its service is stopped",
                         to_string(term_), scope_.node()));
    stop_service();
  }

  void resign() {
    if (phase_ == phase::leading)
      stop_service();
  }

  void stop() {
    if (ending_)
      return;
    ending_ = true;
    switch (phase_) {
      case phase::leading:
        stop_service();
        break;
      case phase::stopping:
        break;
      case phase::asking:
        cancel_.cancel(); // refused follows
        break;
      default:
        quit();
    }
  }

  // -- helpers ----------------------------------------------------------------

  void stop_service() {
    phase_ = phase::stopping;
    compat::anon_send_exit(service_, caf::exit_reason::user_shutdown);
    wake_after(options_.stop_within);
  }

  void failed(const std::string& why) {
    log_line(log_level::error, fmt::format("service {} does not start on {}: {}",
                                           to_string(term_), scope_.node(),
                                           why));
    held_.release();
    back_off();
  }

  void back_off() {
    phase_ = phase::backing_off;
    wake_after(delay_);
    delay_ = std::min(2 * delay_, options_.back_off_most);
  }

  void wake_after(std::chrono::milliseconds delay) {
    compat::delayed_send(this, delay, wake_atom_v, ++generation_);
  }

  scope scope_;
  const term term_;
  const service_factory factory_;
  const leadership_options options_;
  const std::shared_ptr<leadership_state> shared_;
  compat::monitors monitors_;
  std::optional<session> session_;
  cancel_source cancel_;
  lock held_;
  caf::actor service_;
  phase phase_ = phase::settling;
  bool ending_ = false;
  std::uint64_t generation_ = 0; // of timers
  std::chrono::milliseconds delay_;
  std::chrono::steady_clock::time_point since_;
};

} // namespace

bool leadership::leading() const noexcept {
  return epoch() != 0;
}

fencing_token leadership::epoch() const noexcept {
  return state_->epoch.load();
}

void leadership::resign() const {
  state_->tell(look_atom_v);
}

void leadership::stop() const {
  state_->stop();
}

bool leadership::wait_stopped(std::chrono::milliseconds limit) const {
  return state_->wait_stopped(limit);
}

leadership lead_term(const scope& where, term what, service_factory factory,
                     leadership_options options) {
  auto shared = std::make_shared<leadership_state>();
  auto& state = *where.state();
  auto who = state.system().spawn<leader, caf::hidden>(
    where, std::move(what), std::move(factory), options, shared);
  shared->attach(std::move(who));
  state.stop_before(shared);
  return leadership{std::move(shared)};
}

} // namespace pawl
