#include "pawl/core/block_pool.hpp"

#include "pawl/core/ensure.hpp"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#  define PAWL_PLAIN_POOL 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer)
#    define PAWL_PLAIN_POOL 1
#  endif
#endif

namespace pawl {

#ifdef PAWL_PLAIN_POOL

void* block_pool::take() {
  return ::operator new(block_size, std::align_val_t{block_size});
}

void block_pool::give(void* block) noexcept {
  ::operator delete(block, std::align_val_t{block_size});
}

std::size_t block_pool::blocks_out() {
  return 0;
}

void block_pool::flush() noexcept {
  // nop
}

#else

namespace {

struct free_block {
  free_block* next;
};

constexpr std::size_t slab_size = 64 * 1024;
constexpr std::size_t blocks_per_slab = slab_size / block_pool::block_size - 1;
constexpr unsigned magazine_size = 64;

/// Empty slabs kept, so that a load that swings around a slab's edge does not
/// map and unmap memory at each swing.
constexpr std::size_t spare_slabs = 4;

/// Lies in the first block of its slab; slabs are aligned to their size, so
/// that a block finds it by masking its address. Guarded by the depot's lock.
struct slab {
  free_block* free = nullptr;
  std::size_t used = 0;
  slab* prev = nullptr; // among the slabs with a free block
  slab* next = nullptr;
};

static_assert(sizeof(slab) <= block_pool::block_size);

/// All slabs. Invariant: a slab is in the list iff it has a free block.
class depot {
public:
  /// At most `count` blocks, at least one; `count` says how many.
  free_block* take_batch(unsigned& count) {
    std::lock_guard guard{lock_};
    free_block* result = nullptr;
    unsigned taken = 0;
    for (; taken < count; ++taken) {
      if (partial_ == nullptr) {
        if (taken > 0)
          break; // a whole batch is not worth a slab, nor a bad_alloc
        add_slab();
      }
      auto* from = partial_;
      auto* block = from->free;
      from->free = block->next;
      if (from->used++ == 0)
        --empty_;
      if (from->free == nullptr)
        unlink(from);
      block->next = result;
      result = block;
    }
    count = taken;
    out_ += taken;
    return result;
  }

  void give_batch(free_block* first) noexcept {
    std::lock_guard guard{lock_};
    while (first != nullptr) {
      auto* block = first;
      first = first->next;
      give_one(block);
      --out_;
    }
  }

  std::size_t out() {
    std::lock_guard guard{lock_};
    return out_;
  }

private:
  void give_one(free_block* block) noexcept {
    auto address = reinterpret_cast<std::uintptr_t>(block);
    auto* home = reinterpret_cast<slab*>(address & ~(slab_size - 1));
    if (home->free == nullptr)
      link(home);
    block->next = home->free;
    home->free = block;
    ensure(home->used > 0, "a block is given back once");
    if (--home->used > 0)
      return;
    if (++empty_ > spare_slabs) {
      --empty_;
      unlink(home);
      std::free(home);
    }
  }

  void add_slab() {
    auto* memory = std::aligned_alloc(slab_size, slab_size);
    if (memory == nullptr)
      throw std::bad_alloc{};
    auto* fresh = new (memory) slab;
    auto* bytes = static_cast<std::byte*>(memory);
    for (auto i = blocks_per_slab; i > 0; --i) {
      auto* block = new (bytes + i * block_pool::block_size) free_block;
      block->next = fresh->free;
      fresh->free = block;
    }
    ++empty_;
    link(fresh);
  }

  void link(slab* x) noexcept {
    x->prev = nullptr;
    x->next = partial_;
    if (partial_ != nullptr)
      partial_->prev = x;
    partial_ = x;
  }

  void unlink(slab* x) noexcept {
    (x->prev != nullptr ? x->prev->next : partial_) = x->next;
    if (x->next != nullptr)
      x->next->prev = x->prev;
  }

  std::mutex lock_;
  slab* partial_ = nullptr;
  std::size_t empty_ = 0;
  std::size_t out_ = 0;
};

depot& the_depot() {
  // Never destroyed: threads may end after the statics of this file.
  static auto* instance = new depot;
  return *instance;
}

/// Without a destructor, so that its members keep their values, and their
/// meaning, until the thread is gone: other thread-local objects may take and
/// give blocks after the magazine has been emptied for the last time.
struct magazine {
  free_block* first = nullptr;
  unsigned count = 0;
  bool retired = false;

  void empty_into_depot() noexcept {
    the_depot().give_batch(first);
    first = nullptr;
    count = 0;
  }

  /// Gives the newer half back: the older half is as warm as it will get.
  void halve() noexcept {
    auto* keep = first;
    for (unsigned i = 1; i < magazine_size; ++i)
      keep = keep->next;
    auto* surplus = keep->next;
    keep->next = nullptr;
    count = magazine_size;
    the_depot().give_batch(surplus);
  }
};

constinit thread_local magazine local_magazine;

/// Empties the magazine when its thread ends; from then on the thread goes to
/// the depot for each block.
struct closer {
  bool enrolled = false;

  ~closer() {
    local_magazine.empty_into_depot();
    local_magazine.retired = true;
  }
};

thread_local closer local_closer;

/// The first use of a magazine that is empty. False if its thread ends.
bool enroll(magazine& mine) noexcept {
  if (mine.retired)
    return false;
  local_closer.enrolled = true; // constructs it
  return true;
}

} // namespace

void* block_pool::take() {
  auto& mine = local_magazine;
  if (mine.first == nullptr) [[unlikely]] {
    auto count = enroll(mine) ? magazine_size : 1;
    mine.first = the_depot().take_batch(count);
    mine.count = count;
  }
  auto* result = mine.first;
  mine.first = result->next;
  --mine.count;
  return result;
}

void block_pool::give(void* block) noexcept {
  auto& mine = local_magazine;
  auto* x = new (block) free_block;
  x->next = mine.first;
  if (mine.first == nullptr && !enroll(mine)) [[unlikely]] {
    the_depot().give_batch(x);
    return;
  }
  mine.first = x;
  if (++mine.count > 2 * magazine_size)
    mine.halve();
}

std::size_t block_pool::blocks_out() {
  return the_depot().out();
}

void block_pool::flush() noexcept {
  local_magazine.empty_into_depot();
}

#endif

} // namespace pawl
