#include "isoloss/doctor/library_versions.h"

#include <fmt/format.h>
#include <hdf5.h>
#include <hwy/highway.h>
#include <isa-l.h>
#include <toml++/impl/version.h>
#include <xxhash.h>
#include <zlib.h>

#include <boost/version.hpp>
#include <nlohmann/detail/abi_macros.hpp>
#include <string_view>

namespace isoloss::doctor {
namespace {

std::string Version(unsigned major, unsigned minor, unsigned patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

/// Converts numbers such as 803 or 90100.
std::string Decimal(unsigned number) {
  return Version(number / 10000, number / 100 % 100, number % 100);
}

std::string RunningHdf5() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  if (H5get_libversion(&major, &minor, &patch) < 0) return "";
  return Version(major, minor, patch);
}

std::string_view Release(std::string_view version) {
  const size_t first = version.find('.');
  if (first == std::string_view::npos) return version;
  return version.substr(0, version.find('.', first + 1));
}

}  // namespace

bool LibraryVersion::Differs() const {
  return !running.empty() && Release(running) != Release(compiled);
}

std::vector<LibraryVersion> LibraryVersions() {
  return {
      {"HDF5", Version(H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE),
       RunningHdf5()},
      {"zlib", ZLIB_VERSION, zlibVersion()},
      {"xxHash", Decimal(XXH_VERSION_NUMBER), Decimal(XXH_versionNumber())},
      {"ISA-L",
       Version(ISAL_MAJOR_VERSION, ISAL_MINOR_VERSION, ISAL_PATCH_VERSION)},
      {"Highway", Version(HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
      {"fmt", Decimal(FMT_VERSION)},
      {"nlohmann-json",
       Version(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
               NLOHMANN_JSON_VERSION_PATCH)},
      {"toml++", Version(TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)},
      {"Boost", Version(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                        BOOST_VERSION % 100)},
  };
}

}  // namespace isoloss::doctor
