// How the numbers of feature rows are stored: as floats, as halves, or as 8-bit codes of which
// each column has a scale and an offset. They become floats where they are read.
#ifndef JGS_KERNELS_STORED_H_
#define JGS_KERNELS_STORED_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace jgs {

// An IEEE 754 number of 16 bits.
struct Half {
  uint16_t bits;
};

// Without branches, so that it is compiled to vector instructions. XLA flushes subnormal
// floats, so subnormal halves are made of integers.
JGS_INLINE inline float ToFloat(Half x) {
  const uint32_t size = x.bits & 0x7fffu;
  const uint32_t exponent = size >= 0x7c00u ? 224u : 112u;  // infinity and NaN keep all ones
  const uint32_t normal = (size << 13) + (exponent << 23);
  const float small = static_cast<float>(static_cast<int32_t>(size)) * 0x1p-24f;
  uint32_t subnormal;
  std::memcpy(&subnormal, &small, 4);
  const uint32_t bits = (size < 0x0400u ? subnormal : normal) | (x.bits & 0x8000u) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The rows of one target's edges, in their order. A row that is missing is null.
template <typename Element>
struct Listed {
  const Element* const* rows;
  const float* coefficient;  // of each row; null: 1
  int64_t count;

  JGS_INLINE float Weight(int64_t i) const {
    return coefficient == nullptr ? 1.0f : coefficient[i];
  }
};

// body.operator()<kColumns>(begin) for blocks of columns: as many of `kMost` as there are, then
// halves of them down to `kLeast`. The last block of `kLeast` may overlap the one before. There
// must be `kLeast` columns.
template <int64_t kMost, int64_t kLeast, typename Body>
JGS_INLINE inline void ForBlocks(int64_t begin, int64_t width, const Body& body) {
  for (; begin + kMost <= width; begin += kMost) body.template operator()<kMost>(begin);
  if constexpr (kMost > kLeast) {
    ForBlocks<kMost / 2, kLeast>(begin, width, body);
  } else if (begin < width) {
    body.template operator()<kLeast>(width - kLeast);
  }
}

#if defined(__x86_64__)
// CPUs with AVX2 have F16C (`CpuIsa` asks for both). Returns how many halves it has converted.
__attribute__((target("avx2,f16c"))) inline int64_t ConvertOnAvx2(const Half* row, int64_t width,
                                                                  float* to) {
  int64_t f = 0;
  for (; f + 8 <= width; f += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + f));
    _mm256_storeu_ps(to + f, _mm256_cvtph_ps(halves));
  }
  return f;
}

// The sums of 8 * kVectors columns from `f` on.
template <int kVectors, bool kWeighted>
__attribute__((target("avx2,f16c"))) inline void SumOnAvx2(const Listed<Half>& listed, int64_t f,
                                                           float* sum) {
  __m256 total[kVectors];
  for (int k = 0; k < kVectors; ++k) total[k] = _mm256_setzero_ps();
  for (int64_t i = 0; i < listed.count; ++i) {
    if (listed.rows[i] == nullptr) continue;
    const auto* row = reinterpret_cast<const __m128i*>(listed.rows[i] + f);
    const __m256 weight = _mm256_set1_ps(kWeighted ? listed.coefficient[i] : 1.0f);
    for (int k = 0; k < kVectors; ++k) {
      const __m256 numbers = _mm256_cvtph_ps(_mm_loadu_si128(row + k));
      total[k] = _mm256_add_ps(total[k], kWeighted ? _mm256_mul_ps(weight, numbers) : numbers);
    }
  }
  for (int k = 0; k < kVectors; ++k) _mm256_storeu_ps(sum + f + 8 * k, total[k]);
}

struct SumBlock {
  const Listed<Half>& listed;
  float* sum;

  template <int64_t kColumns>
  void operator()(int64_t f) const {
    if (listed.coefficient == nullptr) return SumOnAvx2<kColumns / 8, false>(listed, f, sum);
    SumOnAvx2<kColumns / 8, true>(listed, f, sum);
  }
};
#endif

// Rows of floats: they are read where they lie.
struct Floating {
  using Element = float;
  static constexpr bool kConverts = false;
};

// Rows of halves.
struct Halves {
  using Element = Half;
  static constexpr bool kConverts = true;

  // The row as floats.
  void Convert(const Half* __restrict row, int64_t width, float* __restrict to) const {
    int64_t f = 0;
#if defined(__x86_64__)
    if (BestIsa() >= Isa::kAvx2) f = ConvertOnAvx2(row, width, to);
#endif
    for (; f < width; ++f) to[f] = ToFloat(row[f]);
  }

  // The sum of the rows times their coefficients, each column's in the order of the rows.
  void Sum(const Listed<Half>& listed, int64_t width, float* __restrict sum) const {
#if defined(__x86_64__)
    if (width >= 8 && BestIsa() >= Isa::kAvx2) {
      return ForBlocks<64, 8>(0, width, SumBlock{listed, sum});
    }
#endif
    std::fill(sum, sum + width, 0.0f);
    for (int64_t i = 0; i < listed.count; ++i) {
      const Half* __restrict row = listed.rows[i];
      const float weight = listed.Weight(i);
      for (int64_t f = 0; row != nullptr && f < width; ++f) sum[f] += weight * ToFloat(row[f]);
    }
  }
};

// Rows of codes: code * scale + offset, by column. A sum is that of the codes times the scale,
// and that of the coefficients times the offset. Without coefficients both are exact integers.
struct Codes {
  using Element = int8_t;
  static constexpr bool kConverts = true;
  const float* scale;
  const float* offset;

  void Convert(const int8_t* __restrict row, int64_t width, float* __restrict to) const {
    const float* __restrict times = scale;
    const float* __restrict plus = offset;
    RunOn(std::min(BestIsa(), Isa::kAvx2), [=]() JGS_INLINE {
      for (int64_t f = 0; f < width; ++f) {
        to[f] = static_cast<float>(row[f]) * times[f] + plus[f];
      }
    });
  }

  void Sum(const Listed<int8_t>& listed, int64_t width, float* __restrict sum) const {
    float present = 0.0f;
    for (int64_t i = 0; i < listed.count; ++i) {
      if (listed.rows[i] != nullptr) present += listed.Weight(i);
    }
    RunOn(std::min(BestIsa(), Isa::kAvx2), [&]() JGS_INLINE {
      const Block block{listed, sum};
      if (width >= 16) {
        ForBlocks<64, 16>(0, width, block);
      } else {
        ForBlocks<1, 1>(0, width, block);
      }
      for (int64_t f = 0; f < width; ++f) sum[f] = sum[f] * scale[f] + present * offset[f];
    });
  }

 private:
  struct Block {
    const Listed<int8_t>& listed;
    float* sum;

    template <int64_t kColumns>
    JGS_INLINE void operator()(int64_t f) const {
      SumColumns<kColumns>(listed, f, sum);
    }
  };

  template <int64_t kColumns>
  JGS_INLINE static void SumColumns(const Listed<int8_t>& listed, int64_t f, float* sum) {
    if (listed.coefficient != nullptr) {
      float total[kColumns] = {};
      for (int64_t i = 0; i < listed.count; ++i) {
        if (listed.rows[i] == nullptr) continue;
        const int8_t* row = listed.rows[i] + f;
        const float weight = listed.coefficient[i];
        for (int64_t j = 0; j < kColumns; ++j) total[j] += weight * static_cast<float>(row[j]);
      }
      std::copy_n(total, kColumns, sum + f);
      return;
    }
    constexpr int64_t kMost = 255;  // rows whose sum fits 16 bits
    int32_t total[kColumns] = {};
    for (int64_t i = 0; i < listed.count;) {
      const int64_t stop = std::min(listed.count, i + kMost);
      int16_t part[kColumns] = {};
      for (; i < stop; ++i) {
        if (listed.rows[i] == nullptr) continue;
        const int8_t* row = listed.rows[i] + f;
        for (int64_t j = 0; j < kColumns; ++j) part[j] = static_cast<int16_t>(part[j] + row[j]);
      }
      for (int64_t j = 0; j < kColumns; ++j) total[j] += part[j];
    }
    for (int64_t j = 0; j < kColumns; ++j) sum[f + j] = static_cast<float>(total[j]);
  }
};

}  // namespace jgs

#endif  // JGS_KERNELS_STORED_H_
