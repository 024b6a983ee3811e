// A folder for results that goes away again if nothing came of it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isoloss {

/// Makes a folder and what is missing above it. At the end, those that it made
/// and that nobody wrote into are removed.
class NewFolder {
 public:
  /// `remedy` is a sentence for the message.
  /// Errors   IoError if the folder can't be made.
  NewFolder(const std::filesystem::path& folder, const std::string& remedy);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // the outermost first
};

}  // namespace isoloss
