#include "isoloss/doctor/node_health.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "isoloss/base/random_token.h"
#include "isoloss/base/stopwatch.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/doctor/machine.h"

namespace isoloss::doctor {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

/// A part of the check writes and reads no more after this time.
constexpr double kMostSeconds = 1;

/// Returns a word that differs from place to place, and from 0 and all ones.
uint64_t Pattern(size_t place) {
  return (place + 1) * 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio
}

/// Calls `pass(begin, end)` for pieces of [0, words), in order, until all are
/// done or the time limit is reached. Returns the end of the last piece.
template <typename Pass>
size_t ForPieces(size_t words, const Pass& pass) {
  constexpr size_t kPiece = size_t{1} << 20;
  const auto begin = Steady::now();
  size_t done = 0;
  while (done < words && (done == 0 || SecondsSince(begin) < kMostSeconds)) {
    const size_t end = std::min(done + kPiece, words);
    pass(done, end);
    done = end;
  }
  return done;
}

std::string Reason() { return std::generic_category().message(errno); }

/// The file vanishes with its descriptor.
class NamelessFile {
 public:
  explicit NamelessFile(const fs::path& folder) {
    const fs::path path = folder / (".isoloss-health-" + RandomToken());
    descriptor_ = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC,
                       S_IRUSR | S_IWUSR);
    if (descriptor_ >= 0) unlink(path.c_str());
  }
  ~NamelessFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

/// Returns the bytes that were written until the end, an error (in errno) or
/// the time limit.
size_t WriteFor(int file, const std::vector<uint64_t>& words) {
  constexpr size_t kPiece = size_t{256} << 10;
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  const size_t all = words.size() * sizeof(uint64_t);
  const auto begin = Steady::now();
  size_t done = 0;
  errno = 0;
  while (done < all && (done == 0 || SecondsSince(begin) < kMostSeconds)) {
    const ssize_t count =
        write(file, bytes + done, std::min(kPiece, all - done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (errno == 0) errno = ENOSPC;
      break;
    }
    done += static_cast<size_t>(count);
    errno = 0;
  }
  return done;
}

/// Returns the place of the first byte that differs from `words`; `bytes` if
/// none does. errno is 0, or says why the file could not be read.
size_t FirstDifference(int file, const std::vector<uint64_t>& words,
                       size_t bytes) {
  std::vector<char> piece(size_t{256} << 10);
  const auto* due = reinterpret_cast<const char*>(words.data());
  errno = 0;
  for (size_t done = 0; done < bytes;) {
    const ssize_t count =
        pread(file, piece.data(), std::min(piece.size(), bytes - done),
              static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return done;
    const auto read = static_cast<size_t>(count);
    const auto [at, unused] =
        std::mismatch(piece.begin(), piece.begin() + count, due + done);
    if (const auto same = static_cast<size_t>(at - piece.begin());
        same < read) {
      return done + same;
    }
    done += read;
  }
  return bytes;
}

}  // namespace

NumericsHealth ExamineNumerics(std::span<const KnownNumerics> known) {
  const SelfTest test = RunSelfTest(known);
  return {.trainings = test.trainings, .problem = DiagnosisOf(test)};
}

MemoryHealth ExamineMemory(const JobNeeds& needs, int processes) {
  constexpr double kMostBlock = 0x1p28;
  const Machine machine = ExamineMachine();
  MemoryHealth memory;
  memory.available_bytes =
      std::min(machine.available_bytes,
               machine.limits.memory_bytes.value_or(machine.available_bytes));
  const double needed = needs.memory * processes;
  if (needed > memory.available_bytes) {
    memory.problem = fmt::format(
        "{} of memory are available, but {} of this job's processes need at "
        "least {} here",
        campaign::SizeText(memory.available_bytes), processes,
        campaign::SizeText(needed));
  }
  const auto words = static_cast<size_t>(
      std::min(kMostBlock, memory.available_bytes / 4 / processes) /
      sizeof(uint64_t));
  try {
    const auto block = std::make_unique_for_overwrite<uint64_t[]>(words);
    // The kernel provides a page when it is first touched, so the rate does not
    // cover the first pass.
    const size_t written = ForPieces(words, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) block[i] = Pattern(i);
    });
    size_t wrong = 0;
    const auto begin = Steady::now();
    const size_t read = ForPieces(written, [&](size_t first, size_t end) {
      for (size_t i = first; i < end; ++i) {
        wrong += block[i] == Pattern(i) ? 0U : 1U;
      }
    });
    const double seconds = SecondsSince(begin);
    if (seconds > 0) {
      memory.bytes_per_second =
          static_cast<double>(read * sizeof(uint64_t)) / seconds;
    }
    if (wrong > 0) {
      memory.problem = fmt::format(
          "{} of {} words of memory came back as others than were written",
          wrong, read);
    }
  } catch (const std::bad_alloc&) {
    memory.problem =
        fmt::format("a block of {} of memory is refused",
                    campaign::SizeText(static_cast<double>(words) * 8));
  }
  return memory;
}

DiskHealth WriteAndReadBack(const fs::path& folder, const JobNeeds& needs) {
  constexpr size_t kBytes = size_t{8} << 20;
  const Disk found = ExamineDisk(folder);
  DiskHealth disk{.free_bytes = found.free_bytes};
  const auto problem = [&](const std::string& what) {
    disk.problem = fmt::format("{} in {}", what, found.existing.string());
    return disk;
  };
  if (!found.problem.empty()) {
    disk.problem = fmt::format("{} takes no results: {}",
                               found.existing.string(), found.problem);
    return disk;
  }
  std::vector<uint64_t> words(kBytes / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) words[i] = Pattern(i);
  const NamelessFile file(found.existing);
  if (file.descriptor() < 0) {
    return problem(fmt::format("no file can be made ({})", Reason()));
  }
  const auto begin = Steady::now();
  const size_t written = WriteFor(file.descriptor(), words);
  if (errno != 0) {
    return problem(fmt::format("a file of {} can't be written ({})",
                               campaign::SizeText(static_cast<double>(kBytes)),
                               Reason()));
  }
  if (fsync(file.descriptor()) != 0) {
    return problem(fmt::format("a file can't be made durable ({})", Reason()));
  }
  disk.write_bytes_per_second =
      static_cast<double>(written) / SecondsSince(begin);
  struct stat status {};
  if (fstat(file.descriptor(), &status) == 0) {
    const double now = WallSeconds();
    const double changed = static_cast<double>(status.st_mtim.tv_sec) +
                           static_cast<double>(status.st_mtim.tv_nsec) * 1e-9;
    // The file system gave the time during the write, so the duration of the
    // write is the uncertainty.
    const double unknown = SecondsSince(begin);
    const double ahead = now - changed;
    disk.seconds_ahead = ahead > 0 ? std::max(0.0, ahead - unknown) : ahead;
  }
  // The bytes should come from the disk, not from this machine's memory, if the
  // system can do so.
  posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  const auto reading = Steady::now();
  const size_t same = FirstDifference(file.descriptor(), words, written);
  if (errno != 0) {
    return problem(
        fmt::format("what was written can't be read back ({})", Reason()));
  }
  if (same < written) {
    return problem(fmt::format(
        "byte {} of a file came back as another one than was written", same));
  }
  disk.read_bytes_per_second =
      static_cast<double>(written) / SecondsSince(reading);
  if (needs.disk > disk.free_bytes) {
    return problem(fmt::format("{} are free, but the results need up to {}",
                               campaign::SizeText(disk.free_bytes),
                               campaign::SizeText(needs.disk)));
  }
  if (std::abs(disk.seconds_ahead) > kMostSecondsOff) {
    disk.problem = fmt::format(
        "its clock is {:.3g} s {} that of the file system of {}, but at "
        "most {:g} s are allowed",
        std::abs(disk.seconds_ahead),
        disk.seconds_ahead > 0 ? "ahead of" : "behind", found.existing.string(),
        kMostSecondsOff);
  }
  return disk;
}

DiskHealth ExamineDiskWithin(std::chrono::duration<double> longest,
                             std::function<DiskHealth()> examine) {
  std::packaged_task<DiskHealth()> task(std::move(examine));
  std::future<DiskHealth> result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(longest) == std::future_status::ready) {
    return result.get();
  }
  return {.problem = fmt::format(
              "the file system of the results has not answered for {:.3g} s",
              longest.count())};
}

double WallSeconds() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace isoloss::doctor
