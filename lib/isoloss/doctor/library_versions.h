// Lists the versions of the libraries that this program is made of.
#pragma once

#include <string>
#include <vector>

namespace isoloss::doctor {

struct LibraryVersion {
  std::string name;
  std::string compiled;      ///< with the headers of this version
  std::string running = {};  ///< loaded now; "" if the library does not say

  /// Returns whether the loaded library is of another release than the headers.
  /// The release ends before the second full stop.
  bool Differs() const;
};

/// The list lacks CLI11, which only the program itself includes.
std::vector<LibraryVersion> LibraryVersions();

}  // namespace isoloss::doctor
