// Draws the table of a job's processes and their measurements.
#pragma once

#include <string>
#include <vector>

#include "isoloss/document/chart.h"

namespace isoloss::report {

/// A value that was not measured is 0, and shown as "-".
struct NodeRow {
  int process = 0;
  std::string host = {};
  double memory_bytes_per_second = 0;
  double write_bytes_per_second = 0;
  double read_bytes_per_second = 0;
  double link_bytes_per_second = 0;  ///< of its slowest link
  double link_seconds = 0;           ///< one way, of its slowest link
  /// Says how far its clock is ahead of the file system's; shown where the rate
  /// is.
  double clock_seconds_ahead = 0;
  bool sick = false;
  bool noted = false;
};

/// Returns one line for each row, below a line of titles.
std::string DrawNodeTable(const std::vector<NodeRow>& rows,
                          const document::TextStyle& style);

}  // namespace isoloss::report
