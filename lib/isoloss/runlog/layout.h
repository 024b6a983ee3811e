// Lists the datasets and attributes that a run log's file has, empty ones too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isoloss::runlog {

/// Returns the paths of all datasets and attributes of a run log's file,
/// sorted:
/// "/steps/loss_nats", "/steps/loss_nats@unit", "@seed". A reader takes a
/// column that is missing for an empty one, and holds types and units to the
/// schema.
///
/// Errors   as ReadRunLog for a file that is no sealed run log.
std::vector<std::string> LayoutOf(const std::filesystem::path& path);

}  // namespace isoloss::runlog
