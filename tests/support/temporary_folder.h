// A fresh folder that is removed at the end of a test.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/base/temporary_folder.h"

namespace isoloss::test_support {

class TemporaryFolder : public isoloss::TemporaryFolder {
 public:
  /// Names of all entries, hidden ones too.
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

}  // namespace isoloss::test_support
