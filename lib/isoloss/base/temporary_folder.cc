#include "isoloss/base/temporary_folder.h"

#include <cstdlib>
#include <string>
#include <system_error>

#include "isoloss/base/files.h"

namespace isoloss {

TemporaryFolder::TemporaryFolder() {
  std::string name =
      (std::filesystem::temp_directory_path() / "isoloss-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) ThrowErrno(name, "make the folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // it is in nobody's way
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace isoloss
