#include "isoloss/base/text_file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "isoloss/base/error.h"

namespace isoloss {

// Not a std::ifstream: its iterators throw when they meet a folder.
std::string ReadTextFile(const std::filesystem::path& path,
                         std::string_view remedy) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  errno = 0;
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  std::string text;
  std::array<char, 4096> chunk;
  size_t count = 0;
  do {
    count = file ? std::fread(chunk.data(), 1, chunk.size(), file.get()) : 0;
    text.append(chunk.data(), count);
  } while (count > 0);
  if (file == nullptr || std::ferror(file.get()) != 0) {
    ThrowError(ErrorKind::kIo, "{}: cannot be read: {}. {}", path.string(),
               std::generic_category().message(errno), remedy);
  }
  return text;
}

}  // namespace isoloss
