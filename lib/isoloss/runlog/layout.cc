#include "isoloss/runlog/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/hdf5/sealed_file.h"

namespace isoloss::runlog {
namespace {

void AddPaths(const std::string& path, const hdf5::Object& object,
              std::vector<std::string>& paths) {
  if (!object.is_group) paths.push_back(path);
  for (const auto& [name, values] : object.attributes) {
    paths.push_back(fmt::format("{}@{}", path, name));
  }
  for (const auto& [name, member] : object.members) {
    AddPaths(fmt::format("{}/{}", path, name), member, paths);
  }
}

}  // namespace

std::vector<std::string> LayoutOf(const std::filesystem::path& path) {
  std::vector<std::string> paths;
  hdf5::ReadSealedFile(path, hdf5::kRunLogFile, [&](const hdf5::Object& root) {
    AddPaths("", root, paths);
  });
  std::ranges::sort(paths);
  return paths;
}

}  // namespace isoloss::runlog
