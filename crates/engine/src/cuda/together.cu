// Tables of addresses, which cuBLASLt reads for products that are computed at once.

struct Addresses {
    u64 value[ADDRESSES];
};

// launch: grid 1, block (ADDRESSES)
extern "C" __global__ void set_addresses(u64* table, Addresses addresses, u32 count) {
    if (threadIdx.x < count) table[threadIdx.x] = addresses.value[threadIdx.x];
}
