// pawl::compat: everything that differs between CAF 0.17 and CAF 1.x, in one
// place. No other file tests a CAF version.
//
// The header has two sections. The first needs caf_core only. The second needs
// caf_io and is there only if PAWL_CAF_IO is defined before the #include, so
// that code without network parts is not forced to link caf_io. Each section
// has a guard of its own (no `#pragma once`): a file may include the header
// without the second section and, through another header, once more with it.

#ifndef PAWL_ACTORS_CAF_COMPAT_HPP
#define PAWL_ACTORS_CAF_COMPAT_HPP

#if __has_include(<caf/mail_cache.hpp>)
#  define PAWL_CAF_1 1
#else
#  define PAWL_CAF_1 0
#endif

#include <caf/all.hpp>

#include <caf/init_global_meta_objects.hpp>

#if PAWL_CAF_1
#  include <caf/default_enum_inspect.hpp>
#  include <caf/is_error_code_enum.hpp>
#endif

#include <caf/logger.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// -- macros: inspection and type ids ------------------------------------------

// clang-format takes the # in a macro of a nested block for a directive.
// clang-format off

// Applies `m` to each argument; the results are separated by commas.
#define PAWL_PARENS ()
#define PAWL_EXPAND(...)                                                       \
  PAWL_EXPAND_1(PAWL_EXPAND_1(PAWL_EXPAND_1(PAWL_EXPAND_1(__VA_ARGS__))))
#define PAWL_EXPAND_1(...)                                                     \
  PAWL_EXPAND_2(PAWL_EXPAND_2(PAWL_EXPAND_2(PAWL_EXPAND_2(__VA_ARGS__))))
#define PAWL_EXPAND_2(...) __VA_ARGS__
#define PAWL_FOR_EACH(m, ...)                                                  \
  __VA_OPT__(PAWL_EXPAND(PAWL_FOR_EACH_STEP(m, __VA_ARGS__)))
#define PAWL_FOR_EACH_STEP(m, x, ...)                                          \
  m(x) __VA_OPT__(, PAWL_FOR_EACH_AGAIN PAWL_PARENS(m, __VA_ARGS__))
#define PAWL_FOR_EACH_AGAIN() PAWL_FOR_EACH_STEP

// Makes `T` inspectable: PAWL_INSPECT(point, x, y). Goes into the namespace of
// `T`; up to 16 fields; `PAWL_INSPECT(T)` is for a type without fields.
#if PAWL_CAF_1
#  define PAWL_FIELD(name) f.field(#name, pawl_x.name)
#  define PAWL_INSPECT(T, ...)                                                 \
    template <class Inspector>                                                 \
    [[maybe_unused]] bool inspect(Inspector& f, T& pawl_x) {                   \
      return f.object(pawl_x).fields(                                          \
        PAWL_FOR_EACH(PAWL_FIELD __VA_OPT__(, ) __VA_ARGS__));                 \
    }
#else
#  define PAWL_FIELD(name) pawl_x.name
#  define PAWL_INSPECT(T, ...)                                                 \
    template <class Inspector>                                                 \
    [[maybe_unused]] typename Inspector::result_type inspect(                  \
      Inspector& f, [[maybe_unused]] T& pawl_x) {                              \
      return f(caf::meta::type_name(#T) __VA_OPT__(, )                         \
                 PAWL_FOR_EACH(PAWL_FIELD __VA_OPT__(, ) __VA_ARGS__));        \
    }
#endif

// Makes the scoped enum `E`, whose valid values are 0..last without gaps, a
// message element. CAF 1.x refuses other values on the wire, CAF 0.17 takes
// them: always ask `pawl::compat::valid_enum` before using a received value.
// On CAF 1.x a `std::string to_string(E)` must be visible.
#if PAWL_CAF_1
#  define PAWL_ENUM(E, last)                                                   \
    constexpr E pawl_last_of(E) noexcept {                                     \
      return E::last;                                                          \
    }                                                                          \
    [[maybe_unused]] inline bool from_string(std::string_view, E&) {           \
      return false;                                                            \
    }                                                                          \
    [[maybe_unused]] inline bool from_integer(std::underlying_type_t<E> value, \
                                              E& result) {                     \
      if (value < 0 || value > static_cast<decltype(value)>(E::last))          \
        return false;                                                          \
      result = static_cast<E>(value);                                          \
      return true;                                                             \
    }                                                                          \
    template <class Inspector>                                                 \
    [[maybe_unused]] bool inspect(Inspector& f, E& x) {                        \
      return caf::default_enum_inspect(f, x);                                  \
    }
#else
#  define PAWL_ENUM(E, last)                                                   \
    constexpr E pawl_last_of(E) noexcept {                                     \
      return E::last;                                                          \
    }
#endif

// clang-format on

// Lets `T` (global namespace; fully qualified) travel in messages inside one
// process only. On CAF 1.x such a type needs a type id as well.
#define PAWL_LOCAL_MESSAGE_TYPE(T) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(T)

// The first type id pawl uses. An application numbers its own types from
// caf::first_custom_type_id; the gap keeps the two apart.
#ifndef PAWL_FIRST_TYPE_ID
#  define PAWL_FIRST_TYPE_ID (caf::first_custom_type_id + 1000)
#endif

namespace pawl::compat {

// Whether a received enum value is one of the declared ones (see PAWL_ENUM).
template <class E>
constexpr bool valid_enum(E x) noexcept {
  using int_t = std::underlying_type_t<E>;
  return static_cast<int_t>(x) >= 0
         && static_cast<int_t>(x) <= static_cast<int_t>(pawl_last_of(E{}));
}

// -- what a response carries --------------------------------------------------

// Anything that is handed to an actor inside one process. If nobody takes it
// (the actor ended first) it is destroyed together with the message, by any
// thread: what must happen then belongs into the destructor of the derived
// class.
class deliverable {
public:
  virtual ~deliverable() = default;
};

using deliverable_ptr = std::shared_ptr<deliverable>;

// The message type around it. Never leaves the process.
struct local_ptr {
  deliverable_ptr ptr;
};

// -- bytes in a message -------------------------------------------------------

// The one message type for encoded bytes. A type of its own, because CAF writes
// and reads a plain std::vector<std::byte> element by element.
struct byte_vector {
  std::vector<std::byte> bytes;

  friend bool operator==(const byte_vector&, const byte_vector&) = default;
};

namespace detail {

// Reads `n` bytes. The number comes from the wire: take the bytes piece by
// piece instead of believing it, so that a lie costs no memory. `read` fills a
// range and returns whether that worked.
template <class Read>
bool read_bytes(std::vector<std::byte>& bytes, std::size_t n, Read read) {
  constexpr std::size_t piece = 64 * 1024;
  bytes.clear();
  while (bytes.size() < n) {
    auto pos = bytes.size();
    auto len = std::min(piece, n - pos);
    bytes.resize(pos + len);
    if (!read(bytes.data() + pos, len))
      return false;
  }
  return true;
}

} // namespace detail

#if PAWL_CAF_1

template <class Inspector>
bool inspect(Inspector& f, byte_vector& x) {
  if constexpr (requires(std::size_t & n) { f.begin_sequence(n); }) {
    if (!f.has_human_readable_format()) {
      auto n = x.bytes.size();
      if (!f.begin_sequence(n))
        return false;
      if constexpr (Inspector::is_loading) {
        auto read = [&f](std::byte* ptr, std::size_t len) {
          return f.value(caf::span<std::byte>{ptr, len});
        };
        if (!detail::read_bytes(x.bytes, n, read))
          return false;
      } else {
        if (!f.value(caf::span<const std::byte>{x.bytes.data(), n}))
          return false;
      }
      return f.end_sequence();
    }
  }
  return f.object(x).fields(f.field("bytes", x.bytes));
}

#else

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, byte_vector& x) {
  auto n = x.bytes.size();
  if constexpr (std::is_base_of_v<caf::serializer, Inspector>) {
    auto write = [&]() -> caf::error {
      if (n == 0)
        return caf::none;
      return f.apply_raw(n, x.bytes.data());
    };
    return caf::error::eval([&] { return f.begin_sequence(n); }, write,
                            [&] { return f.end_sequence(); });
  } else if constexpr (std::is_base_of_v<caf::deserializer, Inspector>) {
    auto read = [&]() -> caf::error {
      caf::error err;
      detail::read_bytes(x.bytes, n, [&](std::byte* ptr, std::size_t len) {
        err = f.apply_raw(len, ptr);
        return !err;
      });
      return err;
    };
    return caf::error::eval([&] { return f.begin_sequence(n); }, read,
                            [&] { return f.end_sequence(); });
  } else {
    // For people, the size must do.
    return f(caf::meta::type_name("bytes"), n);
  }
}

#endif

} // namespace pawl::compat

PAWL_LOCAL_MESSAGE_TYPE(pawl::compat::local_ptr)

// pawl's own blocks go on where this one ends:
//   CAF_BEGIN_TYPE_ID_BLOCK(name, caf::id_block::pawl_compat::end)
CAF_BEGIN_TYPE_ID_BLOCK(pawl_compat, PAWL_FIRST_TYPE_ID)

CAF_ADD_TYPE_ID(pawl_compat, (pawl::compat::byte_vector))

CAF_END_TYPE_ID_BLOCK(pawl_compat)

// Types that never leave the process: they need an id on CAF 1.x, but CAF 0.17
// must not be told about them, since it would ask how to serialize them.
CAF_BEGIN_TYPE_ID_BLOCK(pawl_compat_local, caf::id_block::pawl_compat::end)

CAF_ADD_TYPE_ID(pawl_compat_local, (pawl::compat::local_ptr))

CAF_END_TYPE_ID_BLOCK(pawl_compat_local)

namespace pawl::compat {

// Where the id block of the next header begins.
inline constexpr caf::type_id_t next_type_id
  = caf::id_block::pawl_compat_local::end;

// -- registration of message types --------------------------------------------

// Makes message types known to CAF: pawl's, those of `Blocks` and CAF's own.
// Call it once before the first configuration is built; calling it again does
// no harm. `Blocks` includes the blocks of local-only types.
template <class... Blocks>
void init_meta() {
#if PAWL_CAF_1
  caf::init_global_meta_objects<caf::id_block::pawl_compat>();
  caf::init_global_meta_objects<caf::id_block::pawl_compat_local>();
  (caf::init_global_meta_objects<Blocks>(), ...);
  caf::core::init_global_meta_objects();
#endif
}

// The part of it that goes into each configuration. `Blocks` must not include
// blocks of local-only types.
template <class... Blocks>
void add_types([[maybe_unused]] caf::actor_system_config& cfg) {
#if !PAWL_CAF_1
  cfg.add_message_types<caf::id_block::pawl_compat>();
  (cfg.add_message_types<Blocks>(), ...);
#endif
}

// -- sending ------------------------------------------------------------------

// Sends `xs...` as a message of `self` (a pointer to any actor class, or a
// scoped_actor).
template <class Self, class Handle, class... Ts>
void send(Self&& self, const Handle& receiver, Ts&&... xs) {
#if PAWL_CAF_1
  self->mail(std::forward<Ts>(xs)...).send(receiver);
#else
  self->send(receiver, std::forward<Ts>(xs)...);
#endif
}

// Sends `xs...` as a message without a sender, from any thread.
template <class Handle, class... Ts>
void anon_send(const Handle& receiver, Ts&&... xs) {
#if PAWL_CAF_1
  caf::anon_mail(std::forward<Ts>(xs)...).send(receiver);
#else
  if (receiver)
    caf::anon_send(receiver, std::forward<Ts>(xs)...);
#endif
}

// The same, to be read before messages of ordinary priority. The order among
// urgent messages is kept, the order to ordinary ones is not. On the way to
// another node it is an ordinary message. Never to a blocking actor: there, one
// receive of CAF 0.17 may take an ordinary message and an urgent one at once.
template <class Handle, class... Ts>
void anon_send_urgent(const Handle& receiver, Ts&&... xs) {
#if PAWL_CAF_1
  caf::anon_mail(std::forward<Ts>(xs)...).urgent().send(receiver);
#else
  if (receiver)
    caf::anon_send<caf::message_priority::high>(receiver,
                                                std::forward<Ts>(xs)...);
#endif
}

// Sends `xs...` to `self` itself after `delay`. It cannot be taken back (carry
// a generation number instead), and it keeps `self` alive until it arrives.
template <class Self, class Rep, class Period, class... Ts>
void delayed_send(Self* self, std::chrono::duration<Rep, Period> delay,
                  Ts&&... xs) {
#if PAWL_CAF_1
  self->mail(std::forward<Ts>(xs)...)
    .delay(std::chrono::duration_cast<caf::timespan>(delay))
    .send(self);
#else
  self->delayed_send(
    self, std::chrono::duration_cast<std::chrono::microseconds>(delay),
    std::forward<Ts>(xs)...);
#endif
}

// A request with a finite time-out (a request to a lost node never fails by
// itself). Returns what `.then` and `.receive` are called on.
template <class Self, class Handle, class Rep, class Period, class... Ts>
auto request(Self&& self, const Handle& receiver,
             std::chrono::duration<Rep, Period> timeout, Ts&&... xs) {
#if PAWL_CAF_1
  return self->mail(std::forward<Ts>(xs)...)
    .request(receiver, std::chrono::duration_cast<caf::timespan>(timeout));
#else
  return self->request(
    receiver, std::chrono::duration_cast<std::chrono::microseconds>(timeout),
    std::forward<Ts>(xs)...);
#endif
}

// Hands the current request on to `receiver`. A handler returns the result.
template <class Self, class Handle, class... Ts>
auto delegate(Self* self, const Handle& receiver, Ts&&... xs) {
#if PAWL_CAF_1
  return self->mail(std::forward<Ts>(xs)...).delegate(receiver);
#else
  return self->delegate(receiver, std::forward<Ts>(xs)...);
#endif
}

// Asks `receiver` to end with `reason`, from any thread.
template <class Handle>
void anon_send_exit(const Handle& receiver, caf::exit_reason reason) {
  caf::anon_send_exit(receiver, reason);
}

// -- errors -------------------------------------------------------------------

// The text of an error.
inline std::string render([[maybe_unused]] const caf::actor_system& sys,
                          const caf::error& err) {
#if PAWL_CAF_1
  return caf::to_string(err);
#else
  return sys.render(err);
#endif
}

// -- monitoring ---------------------------------------------------------------

// The actors that one actor watches. A member of that actor, made in its
// constructor; on CAF 0.17 it takes the actor's down handler for itself.
// Addresses are the keys: a handle from before a reconnect compares equal to
// the one after it, so remove the old one before adding the new one.
class monitors {
public:
  using callback
    = std::function<void(const caf::actor_addr&, const caf::error&)>;

  explicit monitors(caf::scheduled_actor* self) : self_(self) {
#if !PAWL_CAF_1
    self_->set_down_handler([this](caf::down_msg& dm) {
      // A DOWN that was on its way when its monitor was removed is not ours.
      if (auto i = entries_.find(dm.source); i != entries_.end()) {
        auto f = std::move(i->second);
        entries_.erase(i);
        f(dm.source, dm.reason);
      }
    });
#endif
  }

  monitors(const monitors&) = delete;

  monitors& operator=(const monitors&) = delete;

  // Calls `f` once, in `self`, when `hdl` has ended; at once (but never from
  // inside this call) if it is gone already. Returns false if it is watched
  // already or the handle is empty.
  template <class Handle>
  bool add(const Handle& hdl, callback f) {
    auto addr = caf::actor_cast<caf::actor_addr>(hdl);
    if (!addr || entries_.contains(addr))
      return false;
#if PAWL_CAF_1
    // `id` tells the callback of a removed entry from that of its successor.
    auto id = ++last_id_;
    auto& entry = entries_[addr];
    entry.id = id;
    entry.handle = self_->monitor(
      hdl, [this, addr, id, f = std::move(f)](const caf::error& reason) {
        auto i = entries_.find(addr);
        if (i == entries_.end() || i->second.id != id)
          return;
        // This very function lives in the entry's action.
        auto keep_alive = std::move(i->second.handle);
        entries_.erase(i);
        f(addr, reason);
      });
#else
    entries_.emplace(addr, std::move(f));
    self_->monitor(hdl);
#endif
    return true;
  }

  // Stops watching; the callback is not called any more.
  template <class Handle>
  void remove(const Handle& hdl) {
    auto addr = caf::actor_cast<caf::actor_addr>(hdl);
    auto i = entries_.find(addr);
    if (i == entries_.end())
      return;
#if PAWL_CAF_1
    i->second.handle.dispose();
#else
    self_->demonitor(addr);
#endif
    entries_.erase(i);
  }

  std::size_t size() const noexcept {
    return entries_.size();
  }

private:
  caf::scheduled_actor* self_;
#if PAWL_CAF_1
  struct entry_type {
    std::uint64_t id = 0;
    caf::disposable handle;
  };
  std::uint64_t last_id_ = 0;
  std::map<caf::actor_addr, entry_type> entries_;
#else
  std::map<caf::actor_addr, callback> entries_;
#endif
};

// -- facts about an actor -----------------------------------------------------

// What enqueues a message on behalf of a running actor. Passing the context of
// the actor that is running keeps the receiver near its worker; null is always
// right.
#if PAWL_CAF_1
using host_type = caf::scheduler;
#else
using host_type = caf::execution_unit;
#endif

inline bool is_blocking(const caf::local_actor* self) noexcept {
  return self->getf(caf::abstract_actor::is_blocking_flag);
}

inline bool is_event_based(const caf::local_actor* self) noexcept {
  return !is_blocking(self);
}

// Whether the actor has ended. May change at once; true stays true.
inline bool is_terminated(const caf::abstract_actor* self) noexcept {
  return self->getf(caf::abstract_actor::is_terminated_flag);
}

// Calls `f(reason)` when the actor (a pointer, or a handle that is not empty)
// has ended; at once, in the caller, if it has ended already. It may run in any
// thread, and whatever it throws would be lost together with all functors that
// come after it: hence `noexcept`.
template <class Actor, class F>
void on_terminate(const Actor& who, F f) {
  static_assert(std::is_nothrow_invocable_v<F&, const caf::error&>,
                "a termination functor must be noexcept");
  caf::abstract_actor* ptr;
  if constexpr (std::is_pointer_v<Actor>)
    ptr = who;
  else
    ptr = caf::actor_cast<caf::abstract_actor*>(who);
  ptr->attach_functor(
    [f = std::move(f)](const caf::error& reason) mutable { f(reason); });
}

// The id of the actor that the calling thread runs, or 0.
inline caf::actor_id running_actor() {
#if PAWL_CAF_1
  return caf::logger::thread_local_aid();
#else
  // The logger keeps this even if logging is compiled out.
  auto* log = caf::logger::current_logger();
  return log != nullptr ? log->thread_local_aid() : 0;
#endif
}

// Whether the caller may act as `self`: it runs inside one of its handlers, its
// body or its constructor (which runs in the thread of the spawner). For a
// blocking actor and for a broker the answer errs on the side of "yes".
inline bool runs_here(caf::local_actor* self) {
  if (running_actor() == self->id())
    return true;
  if (is_blocking(self)) {
    // The innermost scoped_actor of a thread hides the outer ones. All that is
    // known otherwise is that an owner asleep in its mailbox is not the caller.
    return !static_cast<caf::blocking_actor*>(self)->mailbox().blocked();
  }
  // Not yet started: the constructor, or the time before the first message of
  // an actor that starts lazily.
  if (!self->getf(caf::abstract_actor::is_initialized_flag))
    return true;
  // Brokers are run by the network loop, which does not say whom it runs.
  return static_cast<caf::scheduled_actor*>(self)->subtype()
         == caf::resumable::io_actor;
}

// -- responses without a receiver ---------------------------------------------

// Where a result is sent to: one pending response of one actor. Cheap to copy,
// may outlive the actor, does not keep it alive.
class responder {
public:
  responder() = default;

  responder(const caf::local_actor* self, caf::message_id id)
    : actor_(const_cast<caf::local_actor*>(self)->ctrl()), id_(id) {
    // nop
  }

  // Hands `what` to the actor, from any thread. Returns false if the actor is
  // known to be gone. True means that it was accepted, not that it will be
  // taken: the actor may end first, and `what` is then destroyed unseen.
  bool deliver(deliverable_ptr what, host_type* host = nullptr) const {
    auto ptr = actor_.lock();
    if (!ptr || is_terminated(ptr->get()))
      return false;
#if PAWL_CAF_1
    return ptr->enqueue(
      caf::make_mailbox_element(nullptr, id_, local_ptr{std::move(what)}),
      host);
#else
    ptr->enqueue(
      caf::make_mailbox_element(nullptr, id_, {}, local_ptr{std::move(what)}),
      host);
    return true;
#endif
  }

  // The id under which the actor waits for the response.
  caf::message_id id() const noexcept {
    return id_;
  }

  const caf::weak_actor_ptr& actor() const noexcept {
    return actor_;
  }

  explicit operator bool() const noexcept {
    return static_cast<bool>(actor_);
  }

private:
  caf::weak_actor_ptr actor_;
  caf::message_id id_;
};

// A responder with a fresh id, for which nothing is installed yet.
inline responder make_responder(caf::local_actor* self) {
  auto req = self->new_request_id(caf::message_priority::normal);
  return {self, req.response_id()};
}

namespace detail {

template <class F>
void install_response_handler(caf::scheduled_actor* self, caf::message_id id,
                              F f) {
  caf::behavior handler{
    [f = std::move(f)](const local_ptr& x) mutable { f(x.ptr); }};
  self->add_multiplexed_response_handler(id, std::move(handler));
}

} // namespace detail

// Lets the event-based actor `self` run `f(deliverable_ptr)` when the returned
// responder delivers, whatever its behavior is by then; to be called by `self`
// itself. The handler holds no reference to the actor and has no time-out. It
// is dropped uncalled when the actor quits. An exception in `f` is treated like
// one in any handler of the actor. A response waits, as all messages do, while
// the actor is in `.await`.
template <class F>
responder open_response(caf::scheduled_actor* self, F f) {
  auto result = make_responder(self);
  detail::install_response_handler(self, result.id(), std::move(f));
  return result;
}

// The same for many responses under one id. CAF keeps pending responses in a
// plain array on 0.17, so that thousands of them in one actor cost time; a port
// is a single one however many are due. It is armed only while at least one
// response is due, because an actor without a behavior lives on while it waits
// for a response. Used by `self` only, apart from what `where()` returns.
class response_port {
public:
  using callback = std::function<void(const deliverable_ptr&)>;

  response_port(caf::scheduled_actor* self, callback f)
    : state_(
      std::make_shared<state>(self, make_responder(self), std::move(f))) {
    // nop
  }

  response_port(const response_port&) = delete;

  response_port& operator=(const response_port&) = delete;

  // After the port is gone, what still arrives is dropped.
  ~response_port() {
    state_->closed = true;
  }

  // One more response is due. Each must be answered by exactly one delivery;
  // one that has become pointless is answered with a null pointer.
  void expect() {
    if (state_->due++ == 0)
      arm(state_);
  }

  std::size_t due() const noexcept {
    return state_->due;
  }

  const responder& where() const noexcept {
    return state_->where;
  }

private:
  struct state {
    state(caf::scheduled_actor* self_arg, responder where_arg, callback f_arg)
      : self(self_arg), where(std::move(where_arg)), f(std::move(f_arg)) {
      // nop
    }

    caf::scheduled_actor* self;
    responder where;
    callback f;
    std::size_t due = 0;
    bool closed = false;
  };

  static void arm(const std::shared_ptr<state>& st) {
    detail::install_response_handler(st->self, st->where.id(),
                                     [st](const deliverable_ptr& what) {
                                       // Armed again first: `f` may throw, call
                                       // expect() or destroy the port.
                                       if (--st->due > 0)
                                         arm(st);
                                       if (what && !st->closed)
                                         st->f(what);
                                     });
  }

  std::shared_ptr<state> state_;
};

// -- waiting for a response in a blocking actor -------------------------------

enum class wait_result {
  delivered, // the response is there
  timed_out, // the deadline has passed
  exiting,   // the actor was asked to exit
};

namespace detail {

// Looks at each message in the mailbox that has not been looked at yet. Takes
// the response with the given id out of it, leaves everything else in place and
// in order, and notes a request to exit.
class response_scan {
public:
  response_scan(caf::blocking_actor* self, caf::message_id id)
    : self_(self), id_(id) {
#if !PAWL_CAF_1
    self_->mailbox().flush_cache();
#endif
  }

  response_scan(const response_scan&) = delete;

  response_scan& operator=(const response_scan&) = delete;

  ~response_scan() {
#if PAWL_CAF_1
    for (auto i = aside_.rbegin(); i != aside_.rend(); ++i)
      self_->mailbox().push_front(std::move(*i));
#else
    self_->mailbox().flush_cache();
#endif
  }

  // Looks at what is there. Never blocks.
  void run() {
#if PAWL_CAF_1
    while (!delivered) {
      auto ptr = self_->mailbox().pop_front();
      if (!ptr)
        return;
      if (!take(ptr->mid, ptr->payload))
        aside_.push_back(std::move(ptr));
    }
#else
    visitor f{this};
    self_->mailbox().new_round(3, f);
#endif
  }

  // Blocks until there is something to look at. Returns false on time-out.
  bool await(
    const std::optional<std::chrono::steady_clock::time_point>& deadline) {
    if (!deadline) {
      self_->await_data();
      return true;
    }
    // CAF waits for a time of the wall clock here. Short turns keep a clock
    // that is set meanwhile from making this a long wait.
    constexpr std::chrono::steady_clock::duration longest
      = std::chrono::seconds{1};
    for (;;) {
      auto left = *deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::steady_clock::duration::zero())
        return false;
      using wall_clock = std::chrono::high_resolution_clock;
      auto turn = std::chrono::duration_cast<wall_clock::duration>(
        std::min(left, longest));
      if (self_->await_data(wall_clock::now() + turn))
        return true;
    }
  }

  deliverable_ptr result;
  bool delivered = false;
  bool exiting = false;

private:
  template <class Content>
  bool take(caf::message_id id, Content& content) {
    if (id == id_) {
      delivered = true;
      if (content.template match_elements<local_ptr>())
        result = content.template get_as<local_ptr>(0).ptr;
      return true;
    }
    if (content.template match_elements<caf::exit_msg>()
        && content.template get_as<caf::exit_msg>(0).reason)
      exiting = true;
    return false;
  }

#if PAWL_CAF_1
  std::vector<caf::mailbox_element_ptr> aside_;
#else
  // What this skips goes to the cache of the queue, like what any receive
  // skips.
  struct visitor {
    response_scan* scan;

    template <class Queue>
    caf::intrusive::task_result operator()(std::size_t, Queue&,
                                           caf::mailbox_element& x) {
      if (scan->take(x.mid, x.content()))
        return caf::intrusive::task_result::stop;
      return caf::intrusive::task_result::skip;
    }
  };
#endif

  caf::blocking_actor* self_;
  caf::message_id id_;
};

} // namespace detail

// Blocks `self` (also a scoped_actor: pass `scoped.ptr()`) until `where`, made
// by make_responder(self), has delivered, the deadline has passed, or somebody
// wants `self` to exit. Other messages stay in the mailbox in their order. So
// does the exit message, whatever its reason: a blocking actor deals with it in
// its own receives, or it does not, as if it had not waited here. As long as it
// is there, further waits do not block. A response that is there wins over
// both; one that comes after its wait was given up stays in the mailbox, unseen
// by ordinary receives, and can still be waited for.
inline wait_result wait_response(
  caf::blocking_actor* self, const responder& where, deliverable_ptr& result,
  std::optional<std::chrono::steady_clock::time_point> deadline
  = std::nullopt) {
  detail::response_scan scan{self, where.id()};
  scan.run();
  for (;;) {
    if (scan.delivered) {
      result = std::move(scan.result);
      return wait_result::delivered;
    }
    if (scan.exiting)
      return wait_result::exiting;
    if (!scan.await(deadline))
      return wait_result::timed_out;
    scan.run();
  }
}

// -- looking into values ------------------------------------------------------

namespace detail {

// An inspector that hands each field of one object to a callback. It goes one
// level deep only: what to do with a field is up to the callback.
#if PAWL_CAF_1

template <class F>
class field_inspector : public caf::save_inspector {
public:
  explicit field_inspector(F& f) : f_(&f) {
    // nop
  }

  static constexpr bool has_human_readable_format() noexcept {
    return false;
  }

  template <class T>
  auto object(T&) noexcept {
    return object_t<field_inspector>{caf::invalid_type_id, {}, this};
  }

  bool begin_object(caf::type_id_t, std::string_view) noexcept {
    return true;
  }

  bool end_object() noexcept {
    return true;
  }

  template <class Emit>
  struct plain_field {
    Emit emit;

    bool operator()(field_inspector& f) {
      emit(*f.f_);
      return true;
    }

    // A field with its default value is a field like any other.
    template <class T>
    plain_field&& fallback(T&&) && {
      return std::move(*this);
    }

    template <class Predicate>
    plain_field&& invariant(Predicate&&) && {
      return std::move(*this);
    }
  };

  template <class T>
  static auto field(std::string_view, T& x) {
    return make_field([&x](F& f) { f(std::as_const(x)); });
  }

  template <class Get, class Set>
  static auto field(std::string_view, Get get, Set&&) {
    return make_field([get](F& f) mutable {
      auto&& x = get();
      f(std::as_const(x));
    });
  }

  template <class IsPresent, class Get, class... Ts>
  static auto field(std::string_view, IsPresent is_present, Get get, Ts&&...) {
    return make_field([is_present, get](F& f) mutable {
      std::optional<std::decay_t<decltype(get())>> x;
      if (is_present())
        x.emplace(get());
      f(std::as_const(x));
    });
  }

  // What is inspected as another value is an object with one field.
  template <class T>
  [[nodiscard]] bool apply(const T& x) {
    (*f_)(x);
    return true;
  }

  template <class Get, class Set>
  [[nodiscard]] bool apply(Get&& get, Set&&) {
    auto&& x = get();
    return apply(x);
  }

private:
  template <class Emit>
  static plain_field<Emit> make_field(Emit emit) {
    return {std::move(emit)};
  }

  F* f_;
};

template <class T, class F>
concept has_inspect = requires(field_inspector<F>& f, T& x) {
  { inspect(f, x) } -> std::convertible_to<bool>;
};

template <class T, class F>
concept has_inspector_access = requires(field_inspector<F>& f, T& x) {
  { caf::inspector_access<T>::apply(f, x) } -> std::convertible_to<bool>;
};

#else

template <class F>
class field_inspector {
public:
  using result_type = caf::error;

  static constexpr bool reads_state = true;

  static constexpr bool writes_state = false;

  explicit field_inspector(F& f) : f_(&f) {
    // nop
  }

  template <class... Ts>
  caf::error operator()(Ts&&... xs) {
    (emit(xs), ...);
    return caf::none;
  }

private:
  // Annotations are not fields. Their callbacks are not run either: the one of
  // an actor handle would pin the actor.
  template <class T>
  void emit(const T& x) {
    if constexpr (!caf::meta::is_annotation<T>::value
                  && !caf::meta::is_save_callback<T>::value
                  && !caf::meta::is_load_callback<T>::value)
      (*f_)(x);
  }

  F* f_;
};

template <class T, class F>
concept has_inspect = requires(field_inspector<F>& f, T& x) {
  { inspect(f, x) } -> std::convertible_to<caf::error>;
};

template <class T, class F>
concept has_inspector_access = false;

#endif

struct any_field {
  template <class T>
  void operator()(const T&) const {
    // nop
  }
};

template <class T>
struct is_optional : std::false_type {};

template <class T>
struct is_optional<std::optional<T>> : std::true_type {};

#if !PAWL_CAF_1

template <class T>
struct is_optional<caf::optional<T>> : std::true_type {};

#endif

} // namespace detail

// Whether `T` is an object that CAF can look into by its `inspect`.
template <class T>
concept inspectable = detail::has_inspect<
  T, detail::any_field> || detail::has_inspector_access<T, detail::any_field>;

// Calls `f` with each field of `x`, in order. Names and types are not told. `x`
// is not changed, although `inspect` wants to be able to.
template <inspectable T, class F>
void for_each_field(const T& x, F f) {
  detail::field_inspector<F> inspector{f};
  auto& y = const_cast<T&>(x);
  if constexpr (detail::has_inspect<T, detail::any_field>)
    static_cast<void>(inspect(inspector, y));
#if PAWL_CAF_1
  else
    static_cast<void>(caf::inspector_access<T>::apply(inspector, y));
#endif
}

// Whether `T` is std::optional, or CAF's own where CAF has one.
template <class T>
inline constexpr bool is_optional_v = detail::is_optional<T>::value;

// CAF's string view: std::string_view or its forerunner.
#if PAWL_CAF_1
using string_view = std::string_view;
#else
using string_view = caf::string_view;
#endif

// Whether `T` is an atom, which is a number on CAF 0.17 and a type without
// state on CAF 1.x. Its text tells atoms apart on both.
#if PAWL_CAF_1

template <class T>
concept atom = std::is_empty_v<T> && inspectable<T> && requires(const T& x) {
  { to_string(x) } -> std::convertible_to<std::string>;
};

template <atom T>
std::string atom_text(const T& x) {
  return to_string(x);
}

#else

template <class T>
concept atom
  = std::same_as<T, caf::atom_value> || caf::is_atom_constant<T>::value;

inline std::string atom_text(caf::atom_value x) {
  return caf::to_string(x);
}

#endif

// -- configuration ------------------------------------------------------------

// Options of one's own: derive from caf::actor_system_config and write
// `opt_group{custom_options_, "pawl"}.add(variable, "name,n", "help")`; this is
// the same everywhere.

// Reads the command line (and the configuration file, as CAF does by default).
// Returns the text of the error, or nothing if all is well.
inline std::optional<std::string> parse(caf::actor_system_config& cfg, int argc,
                                        char** argv) {
  if (auto err = cfg.parse(argc, argv)) {
#if PAWL_CAF_1
    return caf::to_string(err);
#else
    return caf::actor_system_config::render(err);
#endif
  }
  return std::nullopt;
}

// Whether the help text (or the configuration) was asked for and printed; main
// returns then.
inline bool helptext_printed(const caf::actor_system_config& cfg) {
#if PAWL_CAF_1
  return cfg.helptext_printed();
#else
  return cfg.cli_helptext_printed;
#endif
}

// The arguments that no option took.
inline std::vector<std::string> remainder(const caf::actor_system_config& cfg) {
#if PAWL_CAF_1
  auto xs = cfg.remainder();
  return {xs.begin(), xs.end()};
#else
  return cfg.remainder;
#endif
}

// One queue for all workers instead of work stealing: no polling when idle and
// the shorter way for a single message.
inline void use_sharing_scheduler(caf::actor_system_config& cfg) {
#if PAWL_CAF_1
  cfg.set("caf.scheduler.policy", "sharing");
#else
  cfg.set("scheduler.policy", caf::atom("sharing"));
#endif
}

inline void max_threads(caf::actor_system_config& cfg, std::size_t n) {
#if PAWL_CAF_1
  cfg.set("caf.scheduler.max-threads", n);
#else
  cfg.set("scheduler.max-threads", n);
#endif
}

} // namespace pawl::compat

#endif // PAWL_ACTORS_CAF_COMPAT_HPP

// -- the second section: caf_io -----------------------------------------------

#if defined(PAWL_CAF_IO) && !defined(PAWL_ACTORS_CAF_COMPAT_IO_HPP)
#define PAWL_ACTORS_CAF_COMPAT_IO_HPP

#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman_actor.hpp>

#include <set>

namespace pawl::compat {

// Loads the network module; on CAF 1.x also makes its message types known, so
// call it where init_meta() was called, before an actor system is made.
inline void load_middleman(caf::actor_system_config& cfg) {
#if PAWL_CAF_1
  caf::io::middleman::init_global_meta_objects();
#endif
  cfg.load<caf::io::middleman>();
}

// How often a node says that it is there, and after which silence its peers
// give it up. Both have to be set: one version sends no heartbeats unless told.
inline void set_heartbeat(caf::actor_system_config& cfg, caf::timespan interval,
                          caf::timespan timeout) {
#if PAWL_CAF_1
  cfg.set("caf.middleman.heartbeat-interval", interval);
  cfg.set("caf.middleman.connection-timeout", timeout);
#else
  cfg.set("middleman.heartbeat-interval", interval);
  cfg.set("middleman.connection-timeout", timeout);
#endif
}

// An actor that makes connections, one at a time. One for each peer, so that a
// peer that does not answer delays nobody else.
inline caf::io::middleman_actor make_connector(caf::actor_system& sys) {
  auto& mm = sys.middleman();
#if PAWL_CAF_1
  auto broker = mm.named_broker<caf::io::basp_broker>("BASP");
#else
  auto broker = mm.named_broker<caf::io::basp_broker>(caf::atom("BASP"));
#endif
  return caf::io::make_middleman_actor(sys, broker);
}

// Connects to what is published at host:port without blocking. Calls
// `done(node_id, strong_actor_ptr)` (the pointer is null if nothing is
// published there) or `failed(error)` in `self`.
template <class Self, class Rep, class Period, class Done, class Failed>
void connect(Self* self, const caf::io::middleman_actor& connector,
             std::string host, std::uint16_t port,
             std::chrono::duration<Rep, Period> timeout, Done done,
             Failed failed) {
  request(self, connector, timeout, caf::connect_atom_v, std::move(host), port)
    .then([done = std::move(done)](
            const caf::node_id& node, const caf::strong_actor_ptr& remote,
            const std::set<std::string>&) mutable { done(node, remote); },
          [failed = std::move(failed)](const caf::error& err) mutable {
            failed(err);
          });
}

} // namespace pawl::compat

#endif // PAWL_CAF_IO
