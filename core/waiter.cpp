#include "pawl/core/waiter.hpp"

#include "pawl/core/session_ledger.hpp"

#include <utility>

namespace pawl {

waiter::waiter(session_ledger& who, term what, lock_mode mode,
               hold_record::kind kind)
  : session_(who), what_(std::move(what)), mode_(mode) {
  hold = hold_record::make();
  hold->session = &who;
  hold->what = kind;
  if (kind == hold_record::kind::direct)
    hold->serial = who.id().serial;
  who.ref();
}

waiter::~waiter() {
  while (hold != nullptr) {
    auto* next = hold->what == hold_record::kind::whole ? hold->row_next
                                                        : nullptr;
    hold_record::free(hold);
    hold = next;
  }
  session_.unref();
}

} // namespace pawl
