// The neighbours that a node draws: positions within its row, by integer arithmetic only.
// jgs/sampling/edges/draw.py defines the results; draws by weight are in draw_weighted.h.
//
// 64 rows are drawn at a time, lane by lane, so that the compiler turns every loop over lanes
// into vector instructions.
#ifndef JGS_KERNELS_DRAW_H_
#define JGS_KERNELS_DRAW_H_

#include <cstdint>
#include <memory>

#include "draw_row.h"
#include "isa.h"
#include "threefry.h"

namespace jgs {

constexpr int kLanes = 64;

// The rows of one batch, and what is drawn from them.
struct Draws {
  explicit Draws(int64_t fanout) : fanout(fanout) {}

  // Called before each draw. Rows that take all their neighbours need no room, whatever
  // the fanout is.
  void MakeRoom() {
    if (room >= fanout) return;
    position.reset(new int32_t[fanout * kLanes]);
    room = fanout;
  }

  int64_t fanout;  // the largest of the rows'
  int64_t room = 0;
  int num_rows = 0;
  uint32_t key0[kLanes] = {}, key1[kLanes] = {};  // of each row, if rows have keys of their own
  uint32_t node[kLanes] = {};   // lanes from num_rows on are drawn too, but not used
  uint32_t degree[kLanes] = {};
  uint32_t own_fanout[kLanes] = {};  // of each row, if rows have keys of their own
  std::unique_ptr<int32_t[]> position;  // [fanout][kLanes]
};

// 64 random bits for draw number `draw` of every row. With `own_keys` each row has a key.
template <bool own_keys>
JGS_INLINE inline void RandomBits(Key key, const Draws& d, int64_t draw, uint32_t* high,
                                  uint32_t* low) {
  for (int r = 0; r < kLanes; ++r) {
    uint32_t x0 = d.node[r], x1 = static_cast<uint32_t>(draw);
    Threefry(own_keys ? Key{{d.key0[r], d.key1[r]}} : key, x0, x1);
    high[r] = x0;
    low[r] = x1;
  }
}

enum class Mode { kDistinct, kRepeated };

// `fanout` positions of every row. kDistinct: distinct positions, every subset equally likely,
// for rows with more than `fanout` neighbours (Floyd's algorithm; Bentley and Floyd, "A sample
// of brilliance", CACM 1987). kRepeated: each position is uniform.
template <Mode mode, bool own_keys>
struct DrawRows {
  Key key;
  Draws& d;

  JGS_INLINE void operator()() const {
    for (int64_t i = 0; i < d.fanout; ++i) {
      uint32_t high[kLanes], low[kLanes];
      RandomBits<own_keys>(key, d, i, high, low);
      int32_t* drawn = &d.position[i * kLanes];
      for (int r = 0; r < kLanes; ++r) {  // draws beyond a row's own fanout are not used
        const uint32_t k = own_keys ? d.own_fanout[r] : static_cast<uint32_t>(d.fanout);
        const uint32_t n = mode == Mode::kRepeated
                               ? d.degree[r]
                               : d.degree[r] - (k - static_cast<uint32_t>(i) - 1);
        drawn[r] = PositionBelow(high[r], low[r], n);
      }
      if (mode == Mode::kRepeated) continue;
      int32_t taken[kLanes] = {};
      for (int64_t j = 0; j < i; ++j) {
        const int32_t* earlier = &d.position[j * kLanes];
        for (int r = 0; r < kLanes; ++r) taken[r] |= earlier[r] == drawn[r] ? -1 : 0;
      }
      for (int r = 0; r < kLanes; ++r) {
        const uint32_t k = own_keys ? d.own_fanout[r] : static_cast<uint32_t>(d.fanout);
        const int32_t last = static_cast<int32_t>(d.degree[r] - (k - static_cast<uint32_t>(i)));
        drawn[r] = taken[r] ? last : drawn[r];
      }
    }
  }
};

}  // namespace jgs

#endif  // JGS_KERNELS_DRAW_H_
