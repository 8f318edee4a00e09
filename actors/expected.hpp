// expected<T>: a T, or the failure that says why there is none.

#pragma once

#include "pawl/core/ensure.hpp"
#include "pawl/core/outcome.hpp"

#include <utility>
#include <variant>

namespace pawl {

/// What `.wait()` returns. Not thread-safe; moves with its T.
template <class T>
class [[nodiscard]] expected {
public:
  expected(T value) : data_(std::in_place_index<0>, std::move(value)) {
    // nop
  }

  expected(failure why) : data_(std::in_place_index<1>, std::move(why)) {
    // nop
  }

  [[nodiscard]] bool has_value() const noexcept {
    return data_.index() == 0;
  }

  explicit operator bool() const noexcept {
    return has_value();
  }

  /// The value; must be there.
  [[nodiscard]] T& value() & noexcept {
    ensure(has_value(), "expected::value() is asked for where there is one");
    return *std::get_if<0>(&data_);
  }

  [[nodiscard]] T&& value() && noexcept {
    return std::move(value());
  }

  T& operator*() & noexcept {
    return value();
  }

  T&& operator*() && noexcept {
    return std::move(value());
  }

  T* operator->() noexcept {
    return &value();
  }

  /// Why there is no value; must not be called if there is one.
  [[nodiscard]] const failure& error() const noexcept {
    ensure(!has_value(), "expected::error() is asked for where there is one");
    return *std::get_if<1>(&data_);
  }

private:
  std::variant<T, failure> data_;
};

} // namespace pawl
