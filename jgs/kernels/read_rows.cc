#include "read_rows.h"

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "own_threads.h"

namespace jgs {
namespace {

struct Request {
  int64_t file;
  int64_t first;  // the rows [first, last) of those that were asked for
  int64_t last;
  int64_t offset;
  int64_t bytes;
};

// Where row `rows[i]` lies in its file, of number `file`.
int64_t At(const JgsRowFiles& files, int64_t file, int32_t row) {
  return files.begin[file] + (row - files.first[file]) * files.row_bytes;
}

std::vector<Request> Requests(const JgsRowFiles& files, const int32_t* rows, int64_t num) {
  std::vector<Request> found;
  int64_t file = 0;
  for (int64_t i = 0; i < num; ++i) {
    while (rows[i] >= files.first[file + 1]) ++file;
    const int64_t begin = At(files, file, rows[i]), end = begin + files.row_bytes;
    const int64_t stop = (end + files.align - 1) / files.align * files.align;
    if (!found.empty() && found.back().file == file) {
      Request& last = found.back();
      const int64_t over = At(files, file, rows[i - 1]) + files.row_bytes;
      if (begin - over <= files.gap && stop - last.offset <= files.most) {
        last.last = i + 1;
        last.bytes = stop - last.offset;
        continue;
      }
    }
    const int64_t start = begin / files.align * files.align;
    found.push_back({file, i, i + 1, start, stop - start});
  }
  return found;
}

// Reads a request up to the end of its last row. Returns as JgsReadRows.
int64_t Read(const JgsRowFiles& files, const Request& request, int64_t end, char* buffer) {
  int64_t got = 0;
  while (request.offset + got < end) {
    const iovec to = {buffer + got, static_cast<size_t>(request.bytes - got)};
    const ssize_t more = preadv(files.file[request.file], &to, 1, request.offset + got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return errno;
    if (more == 0) return -1;
    got += more;
    // What follows would not be aligned: the file ends here.
    if (request.offset + got < end && got % files.align != 0) return -1;
  }
  return 0;
}

}  // namespace
}  // namespace jgs

int64_t JgsReadRows(const JgsRowFiles* files, const int32_t* rows, int64_t num, char* out,
                    int64_t* result) {
  std::fill(result, result + 3, 0);
  if (num == 0 || files->row_bytes == 0) return 0;
  std::vector<jgs::Request> requests;
  try {
    requests = jgs::Requests(*files, rows, num);
  } catch (const std::bad_alloc&) {
    return -2;
  }
  const auto size = static_cast<int64_t>(requests.size());
  std::atomic<int64_t> next{0}, failed{0}, failed_file{0};
  const auto work = [&] {
    const int64_t room = files->most + 2 * files->align + files->row_bytes;
    const std::unique_ptr<char, decltype(&std::free)> buffer(
        static_cast<char*>(std::aligned_alloc(4096, (room + 4095) / 4096 * 4096)), &std::free);
    int64_t error = buffer == nullptr ? -2 : 0, i;
    while (error == 0 && failed == 0 && (i = next++) < size) {
      const jgs::Request& request = requests[i];
      const int64_t end = jgs::At(*files, request.file, rows[request.last - 1]) + files->row_bytes;
      error = jgs::Read(*files, request, end, buffer.get());
      if (error != 0) failed_file = request.file;
      for (int64_t row = request.first; error == 0 && row < request.last; ++row) {
        const int64_t at = jgs::At(*files, request.file, rows[row]) - request.offset;
        std::memcpy(out + row * files->row_bytes, buffer.get() + at,
                    static_cast<size_t>(files->row_bytes));
      }
    }
    if (error != 0) failed = error;
  };
  jgs::InOwnThreads(std::min(files->threads, size), work);
  result[0] = failed_file;
  result[1] = size;
  for (const jgs::Request& request : requests) result[2] += request.bytes;
  return failed;
}

void JgsCopyRows(const char* rows, const int32_t* from, const int32_t* to, int64_t num,
                 int64_t row_bytes, char* table) {
  for (int64_t i = 0; i < num; ++i) {
    std::memcpy(table + to[i] * row_bytes, rows + from[i] * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}
