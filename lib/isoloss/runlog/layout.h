// How a run log lies on disk, whatever its values are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isoloss::runlog {

/// A line for each dataset and attribute of a run log's file, with its path,
/// type, number of axes and, if it has one, unit; sorted. A name that writer
/// and reader share with nobody else shows here only.
/// Errors   as ReadRunLog for a file that is no sealed run log.
std::vector<std::string> LayoutOf(const std::filesystem::path& path);

}  // namespace isoloss::runlog
