// Rows of a graph that lies in a file larger than memory, read by many threads at once.
//
// A thread of a kernel that reads a mapped page which is not in memory waits for the disk, so a
// disk that serves 32 requests at once gets one a thread. Here threads of the library's own touch
// what a hop reads, before it is read. They do so in a second mapping of the file, of which the
// system reads no more than the touched pages; the first one keeps its read-ahead for whoever
// reads all edges in order.
#ifndef JGS_KERNELS_READ_AHEAD_H_
#define JGS_KERNELS_READ_AHEAD_H_

#include <cstdint>
#include <vector>

namespace jgs {

// Whether JgsReadAhead has named the file of `indices`.
bool IsReadAhead(const int32_t* indices);

// Touches the pages of these edges of `indices`, if they are read ahead.
void ReadEdgesAhead(const int32_t* indices, const std::vector<int64_t>& edges);

// Touches the pages of the rows [start, start + degree) [num] of `indices`, if they are read
// ahead. Rows of more than 8 pages are passed over: the system reads ahead within them.
void ReadRowsAhead(const int32_t* indices, const int64_t* start, const int32_t* degree,
                   int64_t num);

}  // namespace jgs

extern "C" {

// From now on the `bytes` at `base`, a mapping of the file with descriptor `file` from `offset`
// on, a multiple of the page size, are read ahead by so many threads; 0: none are. Returns 0, or
// the errno of the mapping.
int64_t JgsReadAhead(const char* base, int64_t bytes, int32_t file, int64_t offset,
                     int64_t threads);
}

#endif  // JGS_KERNELS_READ_AHEAD_H_
