//! The expected signatures were computed from hand-written canonical requests by another program (Python's `hmac`).

use http::HeaderMap;

use super::*;

const INSIDE: &[u8] = b"inside-key-of-the-test";
const REAL: &[u8] = b"real-key-of-the-test";
const TIME: &str = "20260102T030405Z";

struct Case {
    method: &'static str,
    path: &'static str,
    query: String,
    host: &'static str,
    headers: HeaderMap,
    body: &'static [u8],
}

impl Case {
    fn get(path: &'static str, query: &str) -> Self {
        Self {
            method: "GET",
            path,
            query: query.into(),
            host: "example.amazonaws.test",
            headers: [("x-amz-date", TIME)].iter().map(|(name, value)| pair(name, value)).collect(),
            body: b"",
        }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = pair(name, value);
        self.headers.append(name, value);
        self
    }

    fn signed(self, service: &str, headers: &str, signature: &str) -> Self {
        let text = format!(
            "{ALGORITHM} Credential=AKINSIDE/20260102/{service}/aws4_request, SignedHeaders={headers}, Signature={signature}"
        );
        self.header("authorization", &text)
    }

    fn head(&self) -> SignedHead<'_> {
        let Self { method, path, query, host, headers, .. } = self;
        SignedHead { method, path, query, host, headers }
    }

    /// Checks against the placeholder, signs with the real key.
    fn again(&self) -> Result<String, SigningError> {
        let signed = SigV4Claim::of(self.head())?.expect("it is signed");
        let payload = match &signed.payload {
            SigV4Payload::Given(hash) => hash.clone(),
            SigV4Payload::Body => payload_hash(self.body),
        };
        let spelling = signed.check(self.head(), INSIDE, &payload)?;
        signed.signature(self.head(), spelling, REAL, &payload)
    }
}

fn pair(name: &str, value: &str) -> (http::HeaderName, HeaderValue) {
    (name.parse().unwrap(), value.parse().unwrap())
}

#[test]
fn requests_signed_in_a_header_are_signed_again() {
    let plain = Case::get("/", "").signed(
        "us-east-1/service",
        "host;x-amz-date",
        "d7505a271f5d9695580fff69202ccfe1e214846f99eda6fbeec483d42779d594",
    );
    assert_eq!(plain.again().unwrap(), "f51a723205d5b29da599645d492c0e240a8bbaed3201dd78d9b9f463735f8d8f");
    let query = Case::get("/", "Param2=%E1%88%B4&Param1=value1&Param1=value%202").signed(
        "us-east-1/service",
        "host;x-amz-date",
        "5b85afee2f40b9af3ba4e3845b4ec426d770500214df1936932503ad13e227f9",
    );
    // `value%202` sorts before `value1`.
    assert_eq!(query.again().unwrap(), "6a62c016c31cda85371b743a39af01594a3322e1c696a4829c04ef30913d3995");
    let headers =
        Case::get("/", "").header("my-header1", "  a   b   c ").header("my-header1", "value4").signed(
            "us-east-1/service",
            "host;my-header1;x-amz-date",
            "15ff444b0eba97b8cf9bee0e45f1b66886f01555624e3c4d2515c265e6f8abe3",
        );
    assert_eq!(headers.again().unwrap(), "b51ac91d2d1d1a6a349bcc886087ade00c46ab51d33c5d1b02585adb74eb37ab");
    let body = b"Action=ListUsers&Version=2010-05-08";
    let post = Case { method: "POST", body, ..Case::get("/", "") }
        .header("content-type", "application/x-www-form-urlencoded")
        .signed(
            "us-east-1/iam",
            "content-type;host;x-amz-date",
            "2f8fd4e3241f8e32f6fe0081ff229d7f537336923a305db8a3bf022610e14d03",
        );
    assert_eq!(post.again().unwrap(), "a4556760dcb00899512eb2474bd492dc7b36a3bc2dfc36984eb92390ea163d0f");
}

#[test]
fn a_path_is_spelled_as_its_service_spells_it() {
    let twice = Case::get("/a%20b/%C3%A4", "").signed(
        "us-east-1/service",
        "host;x-amz-date",
        "85b8b514cc5e0047d1471994be38766791b6610dd250bfa23c811ee0d5922081",
    );
    assert_eq!(twice.again().unwrap(), "57d01226693ecbf8c0fae8ed87e1ad4b6859f39ffe84095fbe570f144b037541");
    let once =
        Case { method: "PUT", host: "bucket.s3.amazonaws.test", body: b"x", ..Case::get("/a%20b//c", "") }
            .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
            .signed(
                "eu-west-1/s3",
                "host;x-amz-content-sha256;x-amz-date",
                "47fd4ed09200607d9b553c14deb24b76b2b8194033b27b3466f6e0c95be9440c",
            );
    assert_eq!(once.again().unwrap(), "4fbede6026127cdadc4aef816c2babaabeb364d1c7028e6f4bbe1f0a09d87f95");
}

fn presigned(id: &str, signature: &str) -> Case {
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={id}%2F20260102%2Feu-west-1%2Fs3%2Faws4_request\
         &X-Amz-Date={TIME}&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}"
    );
    Case { host: "bucket.s3.amazonaws.test", headers: HeaderMap::new(), ..Case::get("/key", &query) }
}

#[test]
fn presigned_requests_are_signed_again() {
    let case = presigned("AKINSIDE", "0c13d1dffef7652906dea907bbeb1d83c009577fb8452061a88bbe7b5be32e75");
    let signed = SigV4Claim::of(case.head()).unwrap().unwrap();
    assert!(signed.is_in_query());
    let spelling = signed.check(case.head(), INSIDE, UNSIGNED).unwrap();
    let query = signed.query_with_id(&case.query, "AKREAL");
    let head = SignedHead { query: &query, ..case.head() };
    let again = signed.signature(head, spelling, REAL, UNSIGNED).unwrap();
    assert_eq!(again, "0eb7fc59c5450f848d8fa94512ee8ee4d4b4ff90d00a0f0b3415a9e96bbf00b3");
    assert!(!query.contains("AKINSIDE") && !query.contains("X-Amz-Signature"));
}

#[test]
fn a_session_token_is_signed_as_it_leaves() {
    let case = Case::get("/", "").header("x-amz-security-token", "token-inside").signed(
        "us-east-1/service",
        "host;x-amz-date;x-amz-security-token",
        "9e1f007c2d21d824cc3f121d609d0c361dc8642e8d644f12f34984b431b9b139",
    );
    let signed = SigV4Claim::of(case.head()).unwrap().unwrap();
    let spelling = signed.check(case.head(), INSIDE, &payload_hash(b"")).unwrap();
    let mut headers = case.headers.clone();
    headers.insert("x-amz-security-token", HeaderValue::from_static("token-real"));
    let again = signed
        .signature(SignedHead { headers: &headers, ..case.head() }, spelling, REAL, &payload_hash(b""))
        .unwrap();
    assert_eq!(again, "2f5a254721030b56429db1fd9142c8c6b821327a0916d3165530c4f077355e45");
    let value = signed.authorization("AKREAL", &again).unwrap();
    assert!(
        value.is_sensitive() && value.to_str().unwrap().contains("Credential=AKREAL/20260102/us-east-1/")
    );
}

#[test]
fn what_was_not_signed_with_the_placeholder_is_refused() {
    let other = Case::get("/", "").signed("us-east-1/service", "host;x-amz-date", &"0".repeat(64));
    assert_eq!(other.again(), Err(SigningError::Mismatch));
    let changed = Case { method: "DELETE", ..Case::get("/", "") }.signed(
        "us-east-1/service",
        "host;x-amz-date",
        "d7505a271f5d9695580fff69202ccfe1e214846f99eda6fbeec483d42779d594",
    );
    assert_eq!(changed.again(), Err(SigningError::Mismatch));
}

#[test]
fn what_cannot_be_signed_again_is_named() {
    let chunks = Case::get("/", "")
        .header("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        .signed("eu-west-1/s3", "host;x-amz-date", &"0".repeat(64));
    assert!(matches!(chunks.again(), Err(SigningError::Chunks(_))));
    let asymmetric = Case::get("/", "")
        .header("authorization", "AWS4-ECDSA-P256-SHA256 Credential=A/20260102/s3/aws4_request");
    assert!(matches!(SigV4Claim::of(asymmetric.head()), Err(SigningError::Algorithm(_))));
    let missing = Case::get("/", "").signed("us-east-1/service", "host;x-missing", &"0".repeat(64));
    assert!(matches!(missing.again(), Err(SigningError::Header(_))));
    let empty = Case::get("/", "").header("authorization", "AWS4-HMAC-SHA256 nonsense");
    assert!(matches!(SigV4Claim::of(empty.head()), Err(SigningError::Malformed(_))));
    assert_eq!(SigV4Claim::of(Case::get("/", "").header("authorization", "Bearer x").head()), Ok(None));
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "(AWS4-HMAC-SHA256 )?[ -~]{0,80}", query in "[ -~]{0,60}", path in "/[ -~]{0,40}") {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", text.parse().unwrap());
        headers.insert("x-amz-date", HeaderValue::from_static(TIME));
        let head = SignedHead { method: "GET", path: &path, query: &query, host: "h", headers: &headers };
        if let Ok(Some(signed)) = SigV4Claim::of(head) {
            let _checked = signed.check(head, INSIDE, UNSIGNED);
        }
    }
}
