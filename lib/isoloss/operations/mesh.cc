#include "isoloss/operations/mesh.h"

#include <charconv>
#include <map>
#include <sstream>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"

namespace isoloss::operations {
namespace {

/// A larger mesh is taken for a damaged attribute.
constexpr size_t kMostRanks = size_t{1} << 20;
constexpr size_t kMostAxes = 16;

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Reads a whole number from 0 to kMostRanks; returns false for anything else.
bool ReadCount(std::string_view text, size_t& count) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, count);
  return error == std::errc() && last == end && count <= kMostRanks;
}

std::vector<size_t> CoordinateOf(const OperationFile& file,
                                 std::span<const MeshAxis> mesh) {
  std::vector<size_t> coordinate;
  const std::vector<std::string> words = WordsOf(file.coordinate);
  bool fits = words.size() == mesh.size();
  for (size_t d = 0; fits && d < mesh.size(); ++d) {
    fits = ReadCount(words[d], coordinate.emplace_back()) &&
           coordinate[d] < mesh[d].size;
  }
  if (!fits) {
    ThrowError(ErrorKind::kFormat,
               "{}: its coordinate is `{}`, but its mesh is `{}`. Record the "
               "step again.",
               file.path, Printable(file.coordinate), Printable(file.mesh));
  }
  return coordinate;
}

using DataRanks = std::map<std::vector<size_t>, int64_t>;

/// Returns whether ranks are known that differ in the axis, and all such ranks
/// have the same tokens.
bool ShareTokens(const DataRanks& data_ranks, size_t axis) {
  bool are_known = false;
  for (const auto& [coordinate, data_rank] : data_ranks) {
    if (coordinate[axis] == 0) continue;
    std::vector<size_t> first = coordinate;
    first[axis] = 0;
    const auto found = data_ranks.find(first);
    if (found == data_ranks.end() || found->second != data_rank) return false;
    are_known = true;
  }
  return are_known;
}

}  // namespace

std::vector<MeshAxis> MeshOf(const std::string& text,
                             const std::string& where) {
  const auto reject = [&](const char* rule) {
    ThrowError(ErrorKind::kFormat,
               "{}: attribute mesh is `{}`, but {}. Record the step again.",
               where, Printable(text), rule);
  };
  std::vector<MeshAxis> mesh;
  size_t ranks = 1;
  for (const std::string& word : WordsOf(text)) {
    const size_t equals = word.find('=');
    size_t size = 0;
    if (equals == std::string::npos || equals == 0 ||
        !ReadCount(std::string_view(word).substr(equals + 1), size) ||
        size == 0) {
      reject("its words are NAME=SIZE, as in `dp=2 tp=4`");
    }
    ranks *= size;
    if (ranks > kMostRanks || mesh.size() == kMostAxes) {
      reject("a mesh has at most 2^20 ranks and 16 axes");
    }
    mesh.push_back({.name = word.substr(0, equals), .size = size});
  }
  return mesh;
}

std::vector<MeshAxis> MeshOf(const std::vector<const OperationFile*>& step) {
  const OperationFile& head = *step.front();
  std::vector<MeshAxis> mesh = MeshOf(head.mesh, head.path);
  if (mesh.empty()) return mesh;
  DataRanks data_ranks;
  for (const OperationFile* file : step) {
    if (file->coordinate.empty()) continue;
    data_ranks[CoordinateOf(*file, mesh)] = file->data_rank;
  }
  for (size_t d = 0; d < mesh.size(); ++d) {
    mesh[d].is_data =
        mesh[d].size > 1 && head.data_ranks > 1 && !ShareTokens(data_ranks, d);
  }
  return mesh;
}

std::set<RankShare> RankSharesOf(const OperationFile& file,
                                 std::span<const MeshAxis> mesh) {
  std::set<RankShare> shares;
  const auto add = [&](int64_t parts, int64_t place) {
    if (parts > 1 && place >= 0 && place < parts) {
      shares.insert({static_cast<size_t>(parts), static_cast<size_t>(place)});
    }
  };
  add(file.ranks, file.rank);
  add(file.data_ranks, file.data_rank);
  if (mesh.empty() || file.coordinate.empty()) return shares;
  const std::vector<size_t> coordinate = CoordinateOf(file, mesh);
  for (size_t d = 0; d < mesh.size(); ++d) {
    add(static_cast<int64_t>(mesh[d].size),
        static_cast<int64_t>(coordinate[d]));
  }
  return shares;
}

std::vector<std::string> PlacementsOf(const Floats& tensor,
                                      std::span<const MeshAxis> mesh) {
  std::vector<std::string> words = WordsOf(tensor.placements);
  if (words.size() != mesh.size()) words.clear();
  return words;
}

}  // namespace isoloss::operations
