#include "pawl/core/multi_node_request.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/core/planted.hpp"

#include <algorithm>
#include <utility>

namespace pawl {

namespace {

bool is_asked_for(lock_mode x) noexcept {
  return x == lock_mode::shared || x == lock_mode::exclusive;
}

/// Why a node may refuse. A peer can write anything: what makes no sense reads
/// as a node that does not serve this scope.
outcome sensible(outcome why) noexcept {
  switch (why) {
    case outcome::busy:
    case outcome::cancelled:
    case outcome::session_ended:
    case outcome::too_many_waiters:
    case outcome::term_too_large:
      return why;
    default:
      return outcome::scope_closed;
  }
}

} // namespace

void to_canonical_order(std::vector<term_lock>& terms) {
  std::stable_sort(
    terms.begin(), terms.end(),
    [](const term_lock& a, const term_lock& b) { return a.what < b.what; });
  std::vector<term_lock> result;
  result.reserve(terms.size());
  for (auto& x : terms) {
    if (!result.empty() && result.back().what == x.what)
      result.back().mode = stronger(result.back().mode, x.mode);
    else
      result.push_back(std::move(x));
  }
  terms = std::move(result);
}

outcome check_terms(std::span<const term_lock> terms) noexcept {
  if (terms.empty() || terms.size() > 0xffff)
    return outcome::cancelled;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (!terms[i].what.fits())
      return outcome::term_too_large;
    if (!is_asked_for(terms[i].mode)
        || (i > 0 && !(terms[i - 1].what < terms[i].what)))
      return outcome::cancelled;
  }
  return outcome::pending;
}

multi_node_request::multi_node_request(request_spec spec,
                                       const node_order& order)
  : spec_(std::move(spec)), order_(&order) {
  ensure(check_terms(spec_.terms) == outcome::pending,
         "a request names terms in canonical order");
}

// -- events while it is pending -----------------------------------------------

void multi_node_request::start(std::vector<node_slot> nodes,
                               std::vector<fencing_token> carried,
                               scope_effects& out) {
  ensure(phase_ == phase::idle, "a request is started once");
  ensure(carried.size() == spec_.terms.size(), "one token for each term");
  carried_ = std::move(carried);
  tokens_.assign(spec_.terms.size(), 0);
  order_->sort(nodes);
  for (auto node : nodes)
    parts_.push_back({node, part_state::unasked, {}, false});
  if (parts_.empty()) {
    phase_ = phase::granted; // with token 0, which guards nothing
    out.push_back(effect::whole{id(), tokens_, {}});
    return;
  }
  ask_lead(out);
}

void multi_node_request::fail(outcome why, node_slot concerned,
                              scope_effects& out) {
  ensure(phase_ == phase::idle, "only what was not started cannot start");
  end(why, concerned, out);
}

void multi_node_request::granted(node_slot from, const granted_message& what,
                                 std::uint64_t lamport, scope_effects& out) {
  auto* x = find(from);
  auto old = what.attempt != attempt_ && !PAWL_PLANTED(believes_old_attempts);
  if (x == nullptr || old || x->state == part_state::unasked) {
    out.push_back(effect::send{from, abandon_message{id(), what.attempt}});
    return;
  }
  if (x->state != part_state::asked)
    return; // said twice
  if (what.tokens.size() != spec_.terms.size()) {
    end(outcome::scope_closed, from, out);
    return;
  }
  if (!held_before_) {
    held_before_ = true;
    if (spec_.age.lamport == session_age::holds_nothing)
      spec_.age.lamport = lamport;
    out.push_back(effect::aged{id(), spec_.age.lamport});
  }
  x->state = part_state::held;
  x->tokens = what.tokens;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    tokens_[i] = std::max(tokens_[i], what.tokens[i]);
  if (phase_ == phase::asking_lead)
    ask_others(out);
  raise_or_finish(out);
}

void multi_node_request::refused(node_slot from, const refused_message& what,
                                 scope_effects& out) {
  auto* x = find(from);
  if (!pending() || x == nullptr || what.attempt != attempt_
      || x->state == part_state::unasked)
    return;
  x->state = part_state::unasked;
  end(sensible(what.why), from, out);
}

void multi_node_request::raised(node_slot from, const raised_message& what,
                                scope_effects& out) {
  auto* x = find(from);
  if (!pending() || x == nullptr || what.attempt != attempt_
      || x->state != part_state::raising)
    return;
  x->state = part_state::held;
  raise_or_finish(out);
}

void multi_node_request::cancel(outcome why, scope_effects& out) {
  if (pending())
    end(why, no_node, out);
}

void multi_node_request::give_back_and_ask_again(scope_effects& out) {
  if (phase_ == phase::idle || !pending())
    return;
  abandon_all(out);
  for (auto& x : parts_)
    x = part{x.node, part_state::unasked, {}, false};
  ask_new_lead(out);
}

void multi_node_request::sibling_granted(const multi_node_request& other) {
  auto common = std::any_of(parts_.begin(), parts_.end(), [&](const part& x) {
    return other.involves(x.node);
  });
  if (!pending() || !common)
    return;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (auto which = other.find_term(spec_.terms[i].what);
        which && spec_.terms[i].mode == lock_mode::exclusive
        && other.spec_.terms[*which].mode == lock_mode::exclusive)
      tokens_[i] = std::max(tokens_[i], other.tokens_[*which]);
}

void multi_node_request::waits_elsewhere(scope_effects& out) {
  if (!pending() || std::exchange(spec_.elsewhere, true))
    return;
  tell_elsewhere(out);
}

// -- events in any phase ------------------------------------------------------

void multi_node_request::view_changed(std::vector<node_slot> nodes,
                                      scope_effects& out) {
  ensure(spec_.choice == node_choice::every_node,
         "only an every_node request follows the view");
  if (phase_ == phase::idle || phase_ == phase::ended)
    return;
  ensure(!nodes.empty(), "the view of an open scope contains its own node");
  order_->sort(nodes);
  auto lead = parts_.front().node;
  // Who left has dropped what it held for us, or is gone.
  std::erase_if(parts_, [&](const part& x) {
    if (std::find(nodes.begin(), nodes.end(), x.node) != nodes.end())
      return false;
    if (phase_ == phase::granted)
      out.push_back(effect::node_left{id(), x.node});
    return true;
  });
  if (phase_ == phase::granted)
    return;
  auto same_lead = nodes.front() == lead;
  if (!same_lead)
    abandon_all(out);
  std::vector<part> next;
  for (auto node : nodes) {
    auto* known = same_lead ? find(node) : nullptr;
    next.push_back(known != nullptr ? std::move(*known)
                                    : part{node, part_state::unasked, {}, false});
  }
  parts_ = std::move(next);
  if (!same_lead) {
    ask_new_lead(out);
    return;
  }
  if (phase_ == phase::asking_lead)
    return; // keeps its place; only the set has changed
  ask_others(out);
  raise_or_finish(out);
}

void multi_node_request::node_gone(node_slot which, loss why,
                                   scope_effects& out) {
  if (phase_ == phase::idle || phase_ == phase::ended || !involves(which))
    return;
  if (phase_ == phase::granted) {
    lose(why, which, out);
    return;
  }
  find(which)->state = part_state::unasked;
  end(why == loss::node_down ? outcome::node_down : outcome::scope_closed,
      which, out);
}

bool multi_node_request::lost(node_slot from, const lost_message& what,
                              scope_effects& out) {
  auto* x = find(from);
  if (x == nullptr || what.which >= spec_.terms.size()
      || x->state == part_state::unasked)
    return false;
  if (pending()) {
    // Also while it is only asked: its grant may be on its way behind this.
    give_back_and_ask_again(out);
    return true;
  }
  if (spec_.terms[what.which].mode == lock_mode::none)
    return false; // released before it was lost
  if (what.if_partial) {
    out.push_back(
      effect::send{from, raise_message{id(), attempt_, x->tokens, true}});
    return false;
  }
  out.push_back(effect::hold_lost{id(), {what.which}, loss::outranked, from});
  if (terms_left().size() == 1) {
    take_back(out);
  } else {
    std::uint16_t which[]{what.which};
    release(which, out);
  }
  return true;
}

// -- events once it is granted ------------------------------------------------

/// As if it had never been granted: what is left of the session's holds decides
/// the modes of the rows.
void multi_node_request::take_back(scope_effects& out) {
  if (phase_ != phase::granted)
    return;
  for (const auto& x : parts_)
    out.push_back(effect::send{x.node, abandon_message{id(), attempt_}});
  stop();
}

void multi_node_request::lose(loss why, node_slot gone, scope_effects& out) {
  ensure(phase_ == phase::granted, "only what is held can be lost");
  for (const auto& x : parts_)
    if (x.node != gone)
      out.push_back(effect::send{x.node, abandon_message{id(), attempt_}});
  out.push_back(effect::hold_lost{id(), terms_left(), why, gone});
  stop();
}

void multi_node_request::release(std::span<const std::uint16_t> which,
                                 scope_effects& out) {
  if (phase_ != phase::granted)
    return;
  std::vector<std::uint16_t> gone;
  for (auto i : which) {
    ensure(i < spec_.terms.size(), "a client names a term of its request");
    if (std::exchange(spec_.terms[i].mode, lock_mode::none) != lock_mode::none)
      gone.push_back(i);
  }
  if (!which.empty() && gone.empty())
    return;
  auto all = which.empty() || terms_left().empty();
  if (all)
    gone.clear();
  for (const auto& x : parts_)
    if (!PAWL_PLANTED(releases_on_the_lead_only) || &x == &parts_.front())
      out.push_back(effect::send{x.node, release_message{id(), gone}});
  if (all)
    stop();
}

void multi_node_request::downgrade(std::uint16_t which, scope_effects& out) {
  ensure(which < spec_.terms.size(), "a client names a term of its request");
  auto& mode = spec_.terms[which].mode;
  if (phase_ != phase::granted || mode == lock_mode::none)
    return;
  // On this node whoever asked for it has done it, in the same step: a message
  // would come after what the session has locked since.
  for (const auto& x : parts_)
    if (x.node != id().home)
      out.push_back(effect::send{x.node, downgrade_message{id(), which}});
  if (std::exchange(mode, lock_mode::shared) == lock_mode::exclusive)
    out.push_back(effect::downgraded{id(), which});
}

handed_over multi_node_request::hand_over_to(node_slot node) {
  ensure(phase_ == phase::granted && spec_.choice == node_choice::every_node,
         "only every_node holds are handed over");
  if (!involves(node)) {
    auto place = std::find_if(parts_.begin(), parts_.end(), [&](const part& x) {
      return order_->before(node, x.node);
    });
    parts_.insert(place, {node, part_state::held, tokens_, false});
  }
  handed_over result{id(),      attempt_,    spec_.session,
                     spec_.age, spec_.terms, tokens_};
  for (std::size_t i = 0; i < result.terms.size(); ++i) {
    if (result.terms[i].mode != lock_mode::none)
      continue;
    result.terms[i].mode = lock_mode::shared; // any: only its place counts
    result.tokens[i] = 0;
  }
  return result;
}

// -- queries ------------------------------------------------------------------

std::optional<std::uint16_t> multi_node_request::find_term(
  const term& what) const noexcept {
  auto i = std::lower_bound(
    spec_.terms.begin(), spec_.terms.end(), what,
    [](const term_lock& x, const term& y) { return x.what < y; });
  if (i == spec_.terms.end() || i->what != what)
    return std::nullopt;
  return static_cast<std::uint16_t>(i - spec_.terms.begin());
}

std::vector<node_slot> multi_node_request::nodes() const {
  std::vector<node_slot> result;
  result.reserve(parts_.size());
  for (const auto& x : parts_)
    result.push_back(x.node);
  return result;
}

std::vector<node_slot> multi_node_request::asked() const {
  std::vector<node_slot> result;
  for (const auto& x : parts_)
    if (x.state == part_state::asked)
      result.push_back(x.node);
  return result;
}

bool multi_node_request::asks(node_slot node) const noexcept {
  const auto* x = find(node);
  return x != nullptr && x->state == part_state::asked;
}

standing multi_node_request::in_the_way(const term& what, lock_mode mode,
                                        bool kept) const noexcept {
  auto i = find_term(what);
  if (!i || phase_ == phase::ended)
    return standing::none;
  auto held = spec_.terms[*i].mode;
  if (held == lock_mode::none
      || (!kept && held != lock_mode::exclusive
          && mode != lock_mode::exclusive))
    return standing::none;
  return phase_ == phase::granted ? standing::whole : standing::partial;
}

void multi_node_request::check_invariants() const {
  auto count = [this](part_state state) {
    return static_cast<std::size_t>(
      std::count_if(parts_.begin(), parts_.end(),
                    [=](const part& x) { return x.state == state; }));
  };
  auto unasked = count(part_state::unasked);
  auto asked = count(part_state::asked);
  auto held = count(part_state::held);
  auto raising = count(part_state::raising);
  for (std::size_t i = 1; i < parts_.size(); ++i)
    ensure(order_->before(parts_[i - 1].node, parts_[i].node), "M1: order");
  switch (phase_) {
    case phase::idle:
    case phase::ended:
      ensure(parts_.empty(), "M6: no parts");
      break;
    case phase::asking_lead:
      ensure(!parts_.empty() && parts_[0].state == part_state::asked
               && unasked + 1 == parts_.size(),
             "M2: only the lead is asked");
      break;
    case phase::asking_others:
      ensure(asked > 0 && unasked == 0
               && (parts_[0].state == part_state::held
                   || parts_[0].state == part_state::raising),
             "M3: the lead is held, all others are asked");
      break;
    case phase::raising:
      ensure(raising > 0 && held + raising == parts_.size(),
             "M4: all are held, some are being raised");
      break;
    case phase::granted:
      ensure(held == parts_.size(), "M5: all are held");
      for (const auto& x : parts_)
        ensure(!behind(x), "M5: with the same token");
      break;
  }
  ensure(held + raising == 0 || parts_.empty() || held_before_,
         "M7: a part has been held");
  ensure(!held_before_ || spec_.age.lamport != session_age::holds_nothing,
         "M7: the age is fixed");
}

// -- steps --------------------------------------------------------------------

void multi_node_request::tell_elsewhere(scope_effects& out) {
  for (auto& x : parts_)
    if (x.state == part_state::asked && !std::exchange(x.told, true))
      out.push_back(
        effect::send{x.node, waits_elsewhere_message{id(), attempt_}});
}

void multi_node_request::ask(part& x, bool elsewhere, scope_effects& out) {
  auto is_lead = &x == &parts_.front();
  x.state = part_state::asked;
  x.told = elsewhere || spec_.elsewhere;
  out.push_back(effect::send{
    x.node,
    request_message{id(), attempt_, spec_.session, spec_.age, spec_.terms,
                    is_lead ? carried_ : tokens_, !is_lead, spec_.no_wait,
                    x.told, spec_.patient && !spec_.elsewhere}});
}

void multi_node_request::ask_lead(scope_effects& out) {
  phase_ = phase::asking_lead;
  ask(parts_.front(), false, out);
}

void multi_node_request::ask_others(scope_effects& out) {
  phase_ = phase::asking_others;
  // Where several are asked at once, each has to know that it is not alone.
  auto several = std::count_if(parts_.begin(), parts_.end(), [](const part& x) {
                   return x.state == part_state::unasked
                          || x.state == part_state::asked;
                 })
                 > 1;
  if (several)
    tell_elsewhere(out);
  for (auto& x : parts_)
    if (x.state == part_state::unasked)
      ask(x, several, out);
}

/// All parts are unasked: begins the next attempt.
void multi_node_request::ask_new_lead(scope_effects& out) {
  ++attempt_;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    carried_[i] = std::max(carried_[i], std::exchange(tokens_[i], 0));
  ask_lead(out);
}

/// Goes on as far as the parts allow, once the lead has granted.
void multi_node_request::raise_or_finish(scope_effects& out) {
  auto in = [this](part_state state) {
    return std::any_of(parts_.begin(), parts_.end(),
                       [=](const part& x) { return x.state == state; });
  };
  if (in(part_state::asked))
    return;
  for (auto& x : parts_)
    if (x.state == part_state::held && behind(x))
      raise(x, out);
  if (in(part_state::raising)) {
    phase_ = phase::raising;
    return;
  }
  phase_ = phase::granted;
  out.push_back(effect::whole{id(), tokens_, nodes()});
}

bool multi_node_request::behind(const part& x) const noexcept {
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (spec_.terms[i].mode == lock_mode::exclusive && x.tokens[i] < tokens_[i])
      return true;
  return false;
}

void multi_node_request::raise(part& x, scope_effects& out) {
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (spec_.terms[i].mode == lock_mode::exclusive)
      x.tokens[i] = tokens_[i];
  x.state = part_state::raising;
  out.push_back(
    effect::send{x.node, raise_message{id(), attempt_, x.tokens, false}});
}

void multi_node_request::end(outcome why, node_slot concerned,
                             scope_effects& out) {
  abandon_all(out);
  out.push_back(effect::ended{id(), why, concerned});
  stop();
}

/// Takes back what was asked, wherever it was.
void multi_node_request::abandon_all(scope_effects& out) {
  for (const auto& x : parts_)
    if (x.state != part_state::unasked
        && (!PAWL_PLANTED(abandons_on_the_lead_only) || &x == &parts_.front()))
      out.push_back(effect::send{x.node, abandon_message{id(), attempt_}});
}

void multi_node_request::stop() {
  phase_ = phase::ended;
  parts_.clear();
}

std::vector<std::uint16_t> multi_node_request::terms_left() const {
  std::vector<std::uint16_t> result;
  for (std::size_t i = 0; i < spec_.terms.size(); ++i)
    if (spec_.terms[i].mode != lock_mode::none)
      result.push_back(static_cast<std::uint16_t>(i));
  return result;
}

multi_node_request::part* multi_node_request::find(node_slot node) noexcept {
  for (auto& x : parts_)
    if (x.node == node)
      return &x;
  return nullptr;
}

const multi_node_request::part* multi_node_request::find(
  node_slot node) const noexcept {
  for (const auto& x : parts_)
    if (x.node == node)
      return &x;
  return nullptr;
}

} // namespace pawl
