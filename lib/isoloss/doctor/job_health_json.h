// Converts a process's health to text, for another process and for programs.
#pragma once

#include <string>

#include "isoloss/doctor/job_health.h"

namespace isoloss::doctor {

std::string ProcessToText(const ProcessHealth& process);

/// Returns false if ProcessToText did not make `text`.
bool ProcessFromText(const std::string& text, ProcessHealth& process);

}  // namespace isoloss::doctor
