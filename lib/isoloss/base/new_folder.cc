#include "isoloss/base/new_folder.h"

#include <system_error>

#include "isoloss/base/error.h"

namespace isoloss {

namespace fs = std::filesystem;

NewFolder::NewFolder(const fs::path& folder, const std::string& remedy) {
  fs::path part;
  for (const fs::path& name : folder) {
    part /= name;
    std::error_code error;
    if (fs::create_directory(part, error)) {
      made_.push_back(part);
    } else if (error) {
      ThrowError(ErrorKind::kIo, "{}: the folder {} can't be made: {}. {}",
                 folder.string(), part.string(), error.message(), remedy);
    }
  }
}

NewFolder::~NewFolder() {
  for (auto part = made_.rbegin(); part != made_.rend(); ++part) {
    std::error_code not_empty;
    fs::remove(*part, not_empty);
  }
}

}  // namespace isoloss
