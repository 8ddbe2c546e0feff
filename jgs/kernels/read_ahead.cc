#include "read_ahead.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>

#include "own_threads.h"

namespace jgs {
namespace {

constexpr int64_t kPage = 4096, kMostPages = 8, kChunk = 64;

struct Mapping {
  const char* base;  // the mapping of others
  const char* twin;  // ours
  int64_t bytes, threads;

  ~Mapping() { munmap(const_cast<char*>(twin), static_cast<size_t>(bytes)); }
};

std::shared_ptr<Mapping> named;  // read and written atomically

// The mapping of `indices` and where in it they begin; or null.
std::shared_ptr<Mapping> MappingOf(const int32_t* indices, int64_t* first) {
  std::shared_ptr<Mapping> mapping = std::atomic_load(&named);
  if (mapping == nullptr) return nullptr;
  *first = reinterpret_cast<const char*>(indices) - mapping->base;
  return *first >= 0 && *first < mapping->bytes ? mapping : nullptr;
}

// Calls touch(i) for each i below `num`, in the mapping's threads.
template <typename Touch>
void InThreads(const Mapping& mapping, int64_t num, const Touch& touch) {
  std::atomic<int64_t> next{0};
  InOwnThreads(std::min(mapping.threads, (num + kChunk - 1) / kChunk), [&] {
    for (int64_t begin; (begin = next.fetch_add(kChunk)) < num;) {
      for (int64_t i = begin; i < std::min(begin + kChunk, num); ++i) touch(i);
    }
  });
}

void TouchPage(const Mapping& mapping, int64_t page) {
  static_cast<void>(*static_cast<const volatile char*>(mapping.twin + page * kPage));
}

}  // namespace

bool IsReadAhead(const int32_t* indices) {
  int64_t first;
  return MappingOf(indices, &first) != nullptr;
}

void ReadEdgesAhead(const int32_t* indices, const std::vector<int64_t>& edges) {
  int64_t first;
  const std::shared_ptr<Mapping> mapping = MappingOf(indices, &first);
  if (mapping == nullptr) return;
  InThreads(*mapping, static_cast<int64_t>(edges.size()), [&](int64_t i) {
    const int64_t at = first + 4 * edges[i];
    if (at < mapping->bytes) TouchPage(*mapping, at / kPage);
  });
}

void ReadRowsAhead(const int32_t* indices, const int64_t* start, const int32_t* degree,
                   int64_t num) {
  int64_t first;
  const std::shared_ptr<Mapping> mapping = MappingOf(indices, &first);
  if (mapping == nullptr) return;
  InThreads(*mapping, num, [&](int64_t row) {
    const int64_t from = first + 4 * start[row], to = from + 4 * int64_t{degree[row]};
    if (from == to || to > mapping->bytes || to - from > kMostPages * kPage) return;
    for (int64_t page = from / kPage; page <= (to - 1) / kPage; ++page) TouchPage(*mapping, page);
  });
}

}  // namespace jgs

int64_t JgsReadAhead(const char* base, int64_t bytes, int32_t file, int64_t offset,
                     int64_t threads) {
  std::shared_ptr<jgs::Mapping> mapping;
  if (threads > 0 && bytes > 0) {
    void* twin = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, file, offset);
    if (twin == MAP_FAILED) return errno;
    madvise(twin, static_cast<size_t>(bytes), MADV_RANDOM);
    mapping.reset(new jgs::Mapping{base, static_cast<const char*>(twin), bytes, threads});
  }
  std::atomic_store(&jgs::named, mapping);
  return 0;
}
