#include "tag_locks.hpp"

#include <algorithm>

namespace scada {

tag_locks::tag_locks(const plant& layout, tag_range tags) : range_(tags) {
  for (tag_id i = 0; i < tags.count; ++i)
    tags_.push_back(tags.first + i);
  auto term_of = [&](tag_id x) { return pawl::term{layout.tags()[x]}; };
  // A lock_set has its locks in the order of their terms, which need not be
  // that of the tags.
  std::sort(tags_.begin(), tags_.end(),
            [&](tag_id a, tag_id b) { return term_of(a) < term_of(b); });
  std::transform(tags_.begin(), tags_.end(), std::back_inserter(terms_),
                 term_of);
}

std::vector<tag_right> tag_locks::rights(pawl::lock_set& held) const {
  std::vector<tag_right> rights(tags_.size());
  for (std::size_t i = 0; i < tags_.size(); ++i)
    rights[tags_[i] - range_.first] = {tags_[i], held[i].token()};
  return rights;
}

} // namespace scada
