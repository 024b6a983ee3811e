// A process's health as text: to another process, and for programs.
#pragma once

#include <string>

#include "isoloss/campaign/job_health.h"

namespace isoloss::campaign {

std::string ProcessToText(const ProcessHealth& process);

/// False if `text` is not one of ProcessToText.
bool ProcessFromText(const std::string& text, ProcessHealth& process);

}  // namespace isoloss::campaign
