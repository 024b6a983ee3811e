// A folder for files that nobody keeps.
#pragma once

#include <filesystem>

namespace isoloss {

/// A new folder of the system's for temporary files that is removed again.
class TemporaryFolder {
 public:
  /// Errors   IoError if the system's folder for temporary files can't hold it.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace isoloss
