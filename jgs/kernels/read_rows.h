// Rows of a table in files, read by several threads at once.
//
// Rows that lie close together are read in one request, with what is between them. Each thread
// has one request under way. `jgs/files/row_file.py` calls it, and has the same in Python.
#ifndef JGS_KERNELS_READ_ROWS_H_
#define JGS_KERNELS_READ_ROWS_H_

#include <cstdint>

extern "C" {

// A table whose row `first[i]` and the next ones lie one after the other in the file i.
struct JgsRowFiles {
  int64_t num_files;
  int64_t row_bytes;
  const int32_t* file;   // [num_files], descriptors
  const int64_t* begin;  // [num_files], where the rows begin, in bytes
  const int64_t* first;  // [num_files + 1]
  int64_t align;         // requests begin and end at multiples of so many bytes
  int64_t gap;           // the most bytes between two rows of a request
  int64_t most;          // the most bytes of a request, more than those of a row
  int64_t threads;
};

// Copies `rows` [num] of the table, which ascend, to `out` [num, row_bytes]. Returns 0; or -1 if a
// file ends before its rows do; or -2 if memory is short; or the errno of a read. Sets result[0]
// to the file that could not be read, result[1] to the number of requests, and result[2] to
// their bytes.
int64_t JgsReadRows(const JgsRowFiles* files, const int32_t* rows, int64_t num, char* out,
                    int64_t* result);

// Copies the rows from[i] [num] of `rows` to the rows to[i] of `table`, each of row_bytes.
void JgsCopyRows(const char* rows, const int32_t* from, const int32_t* to, int64_t num,
                 int64_t row_bytes, char* table);
}

#endif  // JGS_KERNELS_READ_ROWS_H_
