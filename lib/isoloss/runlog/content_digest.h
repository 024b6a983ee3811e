// The digest of a log's content.
#pragma once

#include <string>

#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Of what is neither empty, 0 nor a clock, so that later versions may add
/// columns; 16 hexadecimal digits.
std::string ContentDigest(const Schema& schema, const View& log);
std::string ContentDigest(const ProbeLog& log);

}  // namespace isoloss::runlog
