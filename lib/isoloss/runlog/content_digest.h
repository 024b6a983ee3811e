// Computes the digest of a log's content.
#pragma once

#include <string>

#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Returns a digest of 16 hexadecimal digits. Columns that are empty, 0 or a
/// clock do not change it, so that later versions may add columns.
std::string ContentDigest(const Schema& schema, const View& log);
std::string ContentDigest(const ProbeLog& log);

}  // namespace isoloss::runlog
