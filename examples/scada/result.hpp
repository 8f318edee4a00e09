// A value, or a sentence that says why there is none.

#pragma once

#include <string>
#include <utility>
#include <variant>

namespace scada {

struct trouble {
  std::string sentence;
};

template <class T>
class [[nodiscard]] result {
public:
  result(T value) : content_(std::move(value)) {
    // nop
  }

  result(trouble why) : content_(std::move(why)) {
    // nop
  }

  explicit operator bool() const noexcept {
    return content_.index() == 0;
  }

  T& operator*() {
    return std::get<0>(content_);
  }

  T* operator->() {
    return &std::get<0>(content_);
  }

  const std::string& error() const {
    return std::get<1>(content_).sentence;
  }

private:
  std::variant<T, trouble> content_;
};

/// For what has nothing to return.
struct done {};

} // namespace scada
