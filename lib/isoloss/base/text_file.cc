#include "isoloss/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"

namespace isoloss {
namespace {

[[noreturn]] void ThrowUnreadable(const std::filesystem::path& path, int error,
                                  std::string_view remedy) {
  ThrowError(ErrorKind::kIo, "{}: cannot be read: {}. {}", path.string(),
             std::generic_category().message(error), remedy);
}

/// Nothing that could block, or never end.
void CheckRegular(const Descriptor& file, const std::filesystem::path& path,
                  std::string_view remedy) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) ThrowUnreadable(path, errno, remedy);
  if (S_ISDIR(status.st_mode)) ThrowUnreadable(path, EISDIR, remedy);
  if (!S_ISREG(status.st_mode)) {
    ThrowError(ErrorKind::kIo,
               "{}: cannot be read: it is a pipe or device, but a file is "
               "needed. {}",
               path.string(), remedy);
  }
}

}  // namespace

std::string ReadTextFile(const std::filesystem::path& path,
                         std::string_view remedy, size_t max_bytes) {
  // O_NONBLOCK: a pipe of that name shall be refused, not waited for.
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) ThrowUnreadable(path, errno, remedy);
  CheckRegular(file, path, remedy);
  std::error_code ignored;
  const uintmax_t size = std::filesystem::file_size(path, ignored);
  const auto refuse = [&] {
    ThrowError(ErrorKind::kFormat,
               "{}: has more than {} bytes, but a file of its kind has less. "
               "{}",
               path.string(), max_bytes, remedy);
  };
  if (!ignored && size > max_bytes) refuse();
  std::string text;
  std::array<char, 1 << 16> chunk;
  for (;;) {
    const ssize_t count = ::read(file.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowUnreadable(path, errno, remedy);
    if (count == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(count));
    if (text.size() > max_bytes) refuse();
  }
}

}  // namespace isoloss
