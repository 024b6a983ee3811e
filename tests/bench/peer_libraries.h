// One function and one source file for each library.
#pragma once

#include "peers.h"

namespace isoloss::bench {

Peer OpenBlas();
Peer EigenLibrary();
Peer OneDnn();

}  // namespace isoloss::bench
