// The terms of a heavy service's tags, and the way back from what was granted
// to the tags.

#pragma once

#include "history.hpp"
#include "plant.hpp"

#include <pawl/pawl.hpp>

#include <vector>

namespace scada {

class tag_locks {
public:
  tag_locks(const plant& layout, tag_range tags);

  /// To ask for: the names of the tags, in pawl's canonical order.
  [[nodiscard]] const std::vector<pawl::term>& terms() const noexcept {
    return terms_;
  }

  /// By which token each tag is held, in the order of the tags.
  [[nodiscard]] std::vector<tag_right> rights(pawl::lock_set& held) const;

private:
  tag_range range_;
  std::vector<pawl::term> terms_;
  std::vector<tag_id> tags_; // of the terms
};

} // namespace scada
