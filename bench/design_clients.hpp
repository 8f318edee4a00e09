// The clients of bench/designs: actors that lock, write and release, over a
// pool of guarded cells that all nodes map.
//
// A cell says who writes it and how often it was written. Whoever is granted a
// key exclusively finds no writer there and puts itself in; whoever is granted
// it shared finds none, too. Counts are raised in two steps: it is the lock
// that makes them one.

#pragma once

#include "bench/measure.hpp"
#include "bench/per_thread.hpp"

#include <pawl/actors/scope.hpp>
#include <pawl/pawl.hpp>

#include <future>
#include <optional>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>

// clang-format off
CAF_BEGIN_TYPE_ID_BLOCK(bench_designs, caf::first_custom_type_id)

  CAF_ADD_ATOM(bench_designs, bench, start_atom, "start")
  CAF_ADD_ATOM(bench_designs, bench, turn_atom, "turn")
  CAF_ADD_ATOM(bench_designs, bench, again_atom, "again")

CAF_END_TYPE_ID_BLOCK(bench_designs)
// clang-format on

namespace bench {

namespace compat = pawl::compat;

// -- what is guarded ----------------------------------------------------------

struct cell {
  std::atomic<std::uint32_t> writes{0};
  std::atomic<std::uint32_t> writer{0};
};

/// The cells of all keys, in a file that all nodes map.
class pool {
public:
  pool(const std::string& path, std::size_t keys)
    : bytes_(keys * sizeof(cell)), keys_(keys) {
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
      throw std::runtime_error("the pool cannot be opened: " + path);
    auto* x
      = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (x == MAP_FAILED)
      throw std::runtime_error("the pool cannot be mapped: " + path);
    cells_ = static_cast<cell*>(x);
  }

  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  ~pool() {
    ::munmap(cells_, bytes_);
  }

  [[nodiscard]] std::size_t keys() const noexcept {
    return keys_;
  }

  cell& operator[](std::uint64_t key) noexcept {
    return cells_[key];
  }

private:
  cell* cells_ = nullptr;
  std::size_t bytes_;
  std::size_t keys_;
};

// -- what is counted ----------------------------------------------------------

/// By one thread.
struct alignas(64) tally {
  using counter = std::atomic<std::uint64_t>;

  static void add(counter& x, std::uint64_t by) noexcept {
    x.store(x.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  counter locks{0};        // granted, written, released
  counter transactions{0}; // ended well, the rare ones included
  counter rare{0};         // of occasional writers
  counter deadlocks{0};    // restarts because of one
  counter timeouts{0};     // restarts because of one
  histogram latency;       // of transactions, while timing; without the rare
  histogram rare_latency;
};

// -- what they do -------------------------------------------------------------

enum class design {
  single,     // 1 and 2: one key, exclusive, on every node
  chain,      // 3: ten keys one by one, exclusive, on every node
  chain_all,  // 3 with lock_all
  heavy,      // 4: ten own keys, shared, on this node, with lock_all
  heavy_each, // 4, one by one
  mixed,      // 4, and one transaction in 100 exclusive on every node
};

/// What all clients of a node have in common.
struct stage {
  stage(pawl::scope where, pool& what) : tags(std::move(where)), cells(what) {
    // nop
  }

  pawl::scope tags;
  pool& cells;
  design how = design::single;
  std::uint64_t node = 0; // its number
  std::uint64_t nodes = 1;
  std::uint64_t clients = 0; // of each node
  std::uint64_t keys = 1;    // of a transaction
  std::uint64_t limit = 0;   // transactions of each client; 0: until stop
  std::chrono::milliseconds patience{0};
  std::atomic<bool> timing{false};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> finished{0};
  std::atomic<std::uint64_t> faults{0};
  std::promise<void> all_finished;
};

class client : public caf::event_based_actor {
public:
  client(caf::actor_config& cfg, stage& where, std::uint64_t index)
    : event_based_actor(cfg), on_(where), index_(index),
      random_((where.node + 1) * 1'000'003 + index),
      name_(
        static_cast<std::uint32_t>(1 + where.node * where.clients + index)) {
    keys_.reserve(where.keys);
    held_.reserve(where.keys);
  }

  caf::behavior make_behavior() override {
    return {
      [this](start_atom) { next(); },
      [this](turn_atom) { next(); },
      [this](again_atom) {
        if (at_once())
          all();
        else
          chain();
      },
    };
  }

private:
  using key = std::uint64_t;

  // -- a transaction ----------------------------------------------------------

  void next() {
    if (on_.stop.load(std::memory_order_relaxed)
        || (on_.limit != 0 && done_ == on_.limit)) {
      over_ = true;
      finish();
      return;
    }
    if (on_.how == design::mixed && !rare_due_ && random_() % 100 == 0)
      rare_due_ = true;
    if (rare_due_) {
      if (rare_runs_)
        return; // goes on when that one is over
      rare_due_ = false;
      write_rarely();
    }
    asked_ = now_ns();
    if (exclusive())
      pick(keys_, 0, on_.cells.keys());
    else
      pick_own();
    if (at_once())
      all();
    else
      chain();
  }

  /// All keys are held: writes, releases, and goes on.
  void commit() {
    for (auto x : keys_)
      leave(x, true);
    held_.clear();
    whole_.release();
    session_.reset();
    end_transaction(mine().latency, asked_, keys_.size());
    ++done_;
    tries_ = 0;
    // Whoever is always granted inline lets the others run, too.
    if (exclusive())
      next();
    else
      compat::send(this, caf::actor_cast<caf::actor>(this), turn_atom_v);
  }

  void end_transaction(histogram& to, std::int64_t asked, std::size_t locks) {
    auto& x = mine();
    tally::add(x.locks, locks);
    tally::add(x.transactions, 1);
    if (on_.timing.load(std::memory_order_relaxed))
      to.record(now_ns() - asked);
  }

  // -- one by one -------------------------------------------------------------

  void chain() {
    if (!session_)
      session_.emplace(on_.tags.activity(this));
    step();
  }

  void step() {
    auto x = keys_[held_.size()];
    auto ask = session_->lock(x, exclusive() ? pawl::exclusive : pawl::shared)
                 .within(on_.patience);
    if (exclusive())
      std::move(ask).on(pawl::every_node); // said to it, in place
    std::move(ask).then(
      [this, x](pawl::lock held) {
        enter(x);
        held_.push_back(std::move(held));
        if (held_.size() < keys_.size())
          step();
        else
          commit();
      },
      [this](const pawl::failure& why) { restart(why); });
  }

  /// Gives all back and takes the same keys again, a little later.
  void restart(const pawl::failure& why) {
    for (std::size_t i = 0; i < held_.size(); ++i)
      leave(keys_[i], false);
    held_.clear();
    session_.reset();
    auto& x = mine();
    if (why.why == pawl::outcome::deadlock)
      tally::add(x.deadlocks, 1);
    else if (why.why == pawl::outcome::timeout)
      tally::add(x.timeouts, 1);
    else
      ++on_.faults;
    if (why.why == pawl::outcome::shutting_down
        || why.why == pawl::outcome::scope_closed) {
      over_ = true;
      finish();
      return;
    }
    tries_ = std::min(tries_ + 1, 10u);
    auto most = std::uint64_t{500} << tries_;
    compat::delayed_send(
      this, std::chrono::microseconds{most / 2 + random_() % (most / 2)},
      again_atom_v);
  }

  // -- at once ----------------------------------------------------------------

  void all() {
    for (auto x : keys_)
      __builtin_prefetch(&on_.cells[x], 1);
    auto mode = exclusive() ? pawl::exclusive : pawl::shared;
    auto ask = on_.tags.activity(this)
                 .lock_all(terms(keys_), mode)
                 .within(on_.patience);
    if (exclusive())
      std::move(ask).on(pawl::every_node); // said to it, in place
    std::move(ask).then(
      [this](pawl::lock_set held) {
        if (held.size() != keys_.size() || !held.still_held())
          ++on_.faults;
        for (auto x : keys_)
          enter(x);
        whole_ = std::move(held);
        commit();
      },
      [this](const pawl::failure& why) { restart(why); });
  }

  // -- the occasional writer --------------------------------------------------

  /// An activity of its own beside the heavy one: of any keys of the pool,
  /// exclusive on every node.
  void write_rarely() {
    rare_runs_ = true;
    auto since = now_ns();
    pick(rare_keys_, 0, on_.cells.keys());
    on_.tags.activity(this)
      .lock_all(terms(rare_keys_), pawl::exclusive)
      .on(pawl::every_node)
      .then(
        [this, since](pawl::lock_set held) {
          if (held.size() != rare_keys_.size() || !held.still_held())
            ++on_.faults;
          for (auto x : rare_keys_)
            enter_alone(x);
          for (auto x : rare_keys_)
            leave_alone(x, true);
          held.release();
          tally::add(mine().rare, 1);
          end_transaction(mine().rare_latency, since, rare_keys_.size());
          rare_over();
        },
        [this](const pawl::failure&) {
          ++on_.faults;
          rare_over();
        });
  }

  void rare_over() {
    rare_runs_ = false;
    if (over_)
      finish();
    else if (rare_due_)
      next();
  }

  // -- by design --------------------------------------------------------------

  [[nodiscard]] bool at_once() const noexcept {
    return on_.how == design::chain_all || on_.how == design::heavy
           || on_.how == design::mixed;
  }

  [[nodiscard]] bool exclusive() const noexcept {
    return on_.how <= design::chain_all;
  }

  // -- cells ------------------------------------------------------------------

  void enter(key x) {
    if (exclusive())
      enter_alone(x);
    else if (on_.cells[x].writer.load(std::memory_order_acquire) != 0)
      ++on_.faults;
  }

  void leave(key x, bool written) {
    if (exclusive()) {
      leave_alone(x, written);
      return;
    }
    auto& c = on_.cells[x];
    if (c.writer.load(std::memory_order_acquire) != 0)
      ++on_.faults;
    if (written)
      raise(c);
  }

  void enter_alone(key x) {
    auto& c = on_.cells[x];
    if (c.writer.load(std::memory_order_acquire) != 0)
      ++on_.faults;
    c.writer.store(name_, std::memory_order_release);
  }

  void leave_alone(key x, bool written) {
    auto& c = on_.cells[x];
    if (c.writer.load(std::memory_order_acquire) != name_)
      ++on_.faults;
    if (written)
      raise(c);
    c.writer.store(0, std::memory_order_release);
  }

  static void raise(cell& c) {
    c.writes.store(c.writes.load(std::memory_order_acquire) + 1,
                   std::memory_order_release);
  }

  // -- keys -------------------------------------------------------------------

  /// Different keys out of `count` from `first`, in random order.
  void pick(std::vector<key>& to, key first, std::uint64_t count) {
    to.clear();
    while (to.size() < on_.keys) {
      auto x = first + random_() % count;
      if (std::find(to.begin(), to.end(), x) == to.end())
        to.push_back(x);
    }
  }

  /// Of the part of the pool that is this client's alone.
  void pick_own() {
    auto span = on_.cells.keys() / (on_.clients * on_.nodes);
    pick(keys_, (on_.node * on_.clients + index_) * span, span);
  }

  static std::vector<pawl::term> terms(const std::vector<key>& keys) {
    std::vector<pawl::term> result;
    result.reserve(keys.size());
    for (auto x : keys)
      result.emplace_back(x);
    return result;
  }

  // -- end --------------------------------------------------------------------

  static tally& mine() {
    return per_thread<tally>::mine();
  }

  void finish() {
    if (rare_runs_)
      return; // it is not over before that is
    session_.reset();
    if (++on_.finished == on_.clients)
      on_.all_finished.set_value();
    quit();
  }

  stage& on_;
  const std::uint64_t index_;
  std::mt19937_64 random_;
  const std::uint32_t name_;
  std::vector<key> keys_;
  std::vector<pawl::lock> held_;
  pawl::lock_set whole_;
  std::optional<pawl::session> session_;
  std::int64_t asked_ = 0;
  std::uint64_t done_ = 0;
  unsigned tries_ = 0;
  bool over_ = false;
  std::vector<key> rare_keys_;
  bool rare_due_ = false;
  bool rare_runs_ = false;
};

} // namespace bench
