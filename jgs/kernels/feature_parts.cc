#include "feature_parts.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace jgs {
namespace {

constexpr int64_t kLeastPart = 64;       // floats; shorter rows cost more than the cache saves
constexpr int64_t kReadsPerRow = 16;     // edges for each row; below it the copy is not worth it
constexpr int64_t kLeastFeatures = 512;  // narrower rows gain too little
constexpr int64_t kUnknownCache = 32 << 20;  // bytes, where the system does not say

std::atomic<int64_t> forced_parts{0};  // 0: by the rule

// The bytes of the last-level cache that the first core shares. Linux says so in a file. What
// sysconf says is the sum over all such caches of a host.
int64_t CacheBytes() {
  long size = 0;
  char unit = 0;
  std::FILE* file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
  if (file == nullptr) return kUnknownCache;
  const int found = std::fscanf(file, "%ld%c", &size, &unit);
  std::fclose(file);
  if (found < 1 || size <= 0 || size > (1 << 24)) return kUnknownCache;
  return static_cast<int64_t>(size) * (unit == 'K' ? 1024 : unit == 'M' ? 1 << 20 : 1);
}

}  // namespace

int64_t FeatureParts(int64_t num_rows, int64_t num_edges, int64_t num_features) {
  static const int64_t cache = CacheBytes();
  const int64_t forced = forced_parts.load(std::memory_order_relaxed);
  if (forced > 0) return std::min(forced, std::max<int64_t>(num_features / kLeastPart, 1));
  return FeaturePartsFor(num_rows, num_edges, num_features, cache);
}

int64_t FeaturePartsFor(int64_t num_rows, int64_t num_edges, int64_t num_features,
                        int64_t cache) {
  const int64_t most = std::max<int64_t>(num_features / kLeastPart, 1);
  const int64_t bytes = num_rows * num_features * static_cast<int64_t>(sizeof(float));
  if (bytes <= cache || num_edges < kReadsPerRow * num_rows) return 1;
  if (num_features < kLeastFeatures) return 1;
  const int64_t wanted = (2 * bytes + cache - 1) / cache;
  if (wanted > 4 * most) return 1;  // the copy of a part is to stay within twice the cache
  return std::min(most, wanted);
}

}  // namespace jgs

// A function for Python: forces this number of parts, or with 0 none.
extern "C" void JgsSetFeatureParts(int64_t parts) { jgs::forced_parts.store(parts); }
